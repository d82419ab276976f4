//! Ways to distribute the work of one program, each compared with one rank, in one, two and three micro-batches.

use meshwright::prelude::*;

use crate::harness::{Steps, built, numbers, same_everywhere};
use crate::net::*;

type Program = fn(&Net, &Batched, &mut Steps);

fn embed(net: &Net, batch: &Batched) -> Stream {
    net.embed.forward(&batch.tokens)
}

/// Runs `program` in one, two and three micro-batches.
#[track_caller]
fn check(name: &str, program: Program) {
    for seq in [6, 7] {
        for count in [1, 2, 3] {
            check_sizes(name, program, (12, seq), count, true);
        }
    }
}

#[track_caller]
fn check_sizes(name: &str, program: Program, size: (usize, usize), count: usize, alike: bool) {
    let name = format!("{name}, {size:?} in {count} micro-batches");
    same_everywhere(&name, |rank| {
        let net = built::<Net>(rank, &sizes());
        let mut steps = Steps::default();
        for index in 0..count {
            program(&net.model, &micro_batch(rank, size, (index, count), alike), &mut steps);
        }
        numbers(&net, steps)
    });
}

const PROGRAMS: &[(&str, Program)] = &[
    ("whole", |net, batch, steps| {
        let x = net.plain.forward(&embed(net, batch));
        let loss = steps.note(Loss::mean_of(&(net.norm.forward(&x) * &x)));
        steps.add(loss);
    }),
    ("split sequence", |net, batch, steps| {
        let x = net.plain.forward(&embed(net, batch).slice(Seq, Tp));
        let loss = steps.note(Loss::mean_of(&(net.norm.forward(&x) * &x)));
        steps.add(loss);
    }),
    ("whole, then split sequence", |net, batch, steps| {
        let x = embed(net, batch);
        if batch.index % 2 == 0 {
            let x = net.plain.forward(&x);
            let loss = steps.note(Loss::mean_of(&(net.norm.forward(&x) * &x)));
            steps.add(loss);
        } else {
            let x = net.plain.forward(&x.slice(Seq, Tp));
            let loss = steps.note(Loss::mean_of(&(net.norm.forward(&x) * &x)));
            steps.add(loss);
        }
    }),
    ("split sequence, then whole, then split batch", |net, batch, steps| {
        let x = embed(net, batch);
        match batch.index {
            0 => {
                let x = net.layer_norm.forward(&x.slice(Seq, Tp));
                let loss = steps.note(Loss::mean_of(&(net.bias.forward(&x) * &x)));
                steps.add(loss);
            }
            1 => {
                let x = net.layer_norm.forward(&x);
                let loss = steps.note(Loss::mean_of(&(net.bias.forward(&x) * &x)));
                steps.add(loss);
            }
            _ => {
                let x = net.layer_norm.forward(&x.slice(Batch, Tp));
                let loss = steps.note(Loss::mean_of(&(net.bias.forward(&x) * &x)));
                steps.add(loss);
            }
        }
    }),
    ("penalty on the mean of samples", |net, batch, steps| {
        let x = net.plain.forward(&embed(net, batch)).tanh();
        let mean = x.mean(Batch).all_reduce();
        let a = steps.note(net.plain_head.loss(&x, &batch.targets));
        let b = steps.note(Loss::mean_of(&(&mean * &mean * &net.gain)));
        steps.add(a.and(b));
    }),
    ("penalty on split features", |net, batch, steps| {
        let x = net.up.forward(&embed(net, batch)).silu();
        let a = steps.note(net.head.loss(&net.down.forward(&x), &batch.targets));
        let b = steps.note(Loss::mean_of(&(&x * &x)));
        steps.add(a.and(b));
    }),
    ("penalty on a scalar", |net, batch, steps| {
        let x = net.plain.forward(&embed(net, batch)).tanh();
        let mean = x.mean(Hidden).mean(Seq).mean(Batch).all_reduce();
        let a = steps.note(net.head.loss(&x, &batch.targets));
        let b = steps.note(Loss::mean_of(&(&mean * &mean)));
        steps.add(a.and(b));
    }),
    ("scatter = Batch", |net, batch, steps| {
        let x = embed(net, batch).mean(Seq);
        let y = net.down_batch.forward(&net.up.forward(&x).silu());
        let loss = steps.note(Loss::mean_of(&(net.norm.forward(&y) * &net.gain)));
        steps.add(loss);
    }),
    ("scatter = Batch, then gather", |net, batch, steps| {
        let x = embed(net, batch).mean(Seq);
        let y = net.down_batch.forward(&net.up.forward(&x).silu());
        let y = net.norm.forward(&y).gather(Batch) + &x;
        let loss = steps.note(Loss::mean_of(&(&y * &y)));
        steps.add(loss);
    }),
    ("scatter = Batch, then up", |net, batch, steps| {
        let x = embed(net, batch).mean(Seq);
        let y = net.down_batch.forward(&net.up.forward(&x).silu());
        let y = net.down.forward(&net.up.forward(&net.norm.forward(&y)).tanh());
        let loss = steps.note(Loss::mean_of(&(&y * &y)));
        steps.add(loss);
    }),
    ("scatter = Seq", |net, batch, steps| {
        let x = embed(net, batch);
        let y = net.down_seq.forward(&net.up_bias.forward(&net.up.forward(&x)).silu());
        let y = net.bias.forward(&(y + x.slice(Seq, Tp)));
        let loss = steps.note(net.head.loss(&net.norm.forward(&y), &batch.targets));
        steps.add(loss);
    }),
    ("slice, then gather", |net, batch, steps| {
        let x = embed(net, batch);
        let y = net.plain.forward(&x.slice(Seq, Tp)).tanh().gather(Seq);
        let z = net.plain.forward(&x.slice(Batch, Tp)).tanh().gather(Batch);
        let h = net.norm.forward(&x).slice(Hidden, Tp).tanh().gather(Hidden);
        let loss = steps.note(Loss::mean_of(&(y * z * h)));
        steps.add(loss);
    }),
    ("sums over split dims", |net, batch, steps| {
        let x = embed(net, batch);
        let sum = net.up.forward(&x).silu().sum(Ffn).all_reduce();
        let own = net.plain.forward(&x).slice(Hidden, Tp).mean(Hidden).all_reduce();
        let seq = x.slice(Seq, Tp).tanh().mean(Seq).all_reduce();
        let a = steps.note(Loss::mean_of(&(&sum * &own)));
        let b = steps.note(Loss::mean_of(&(&seq * &net.gain)));
        steps.add(a.and(b));
    }),
    ("sum over samples, twice", |net, batch, steps| {
        let x = embed(net, batch);
        let once = net.plain.forward(&x).mean(Batch).all_reduce().tanh();
        let twice = net.norm.forward(&x).mean(Batch).all_reduce();
        let sum = x.mean(Seq).sum(Batch).all_reduce();
        let a = steps.note(Loss::mean_of(&(once * twice)));
        let b = steps.note(Loss::mean_of(&(&sum * &sum * &net.gain)));
        steps.add(a.and(b));
    }),
    ("a pooled layer", |net, batch, steps| {
        let x = embed(net, batch);
        let pooled = x.mean(Batch).all_reduce();
        let y = net.down.forward(&net.up.forward(&net.plain.forward(&pooled)).silu());
        let z = y.contract(&net.own).slice(Seq, Tp);
        let loss = steps.note(Loss::mean_of(&(net.norm.forward(&z) * &net.gain)));
        steps.add(loss);
    }),
    ("a mask from the global index", |net, batch, steps| {
        let x = embed(net, batch);
        let mask: Stream = Tensor::from_fn(x.rank(), &x.sizes(), |at| ((at[1] + at[2]) % 3) as f32);
        let y = net.plain.forward(&(&x * &mask));
        let a = steps.note(Loss::mean_of(&(&y * &y)));
        let y = net.up.forward(&y);
        let mask = Tensor::from_fn(y.rank(), &y.sizes(), |at| ((at[1] + at[2]) % 3) as f32);
        let b = steps.note(Loss::mean_of(&(&y * &mask)));
        steps.add(a.and(b));
    }),
    ("attention", |net, batch, steps| {
        let x = net.norm.forward(&embed(net, batch));
        let q = net.rope.forward(&net.q.forward(&x));
        let k = net.rope.forward(&net.k.forward(&x));
        let v = net.v.forward(&x);
        let y = net.o.forward(&net.attention.forward(&(q, k, v)));
        let logits = net.head.logits(&(x + y));
        let loss = steps.note(net.entropy.forward(&logits, &batch.targets));
        steps.add(loss);
    }),
    ("partial sums combined", |net, batch, steps| {
        let x = net.up.forward(&embed(net, batch)).tanh();
        let a = x.contract(&net.down_own);
        let b = x.silu().contract(&net.down_own);
        let y = (a * 0.5 - b).reduce_scatter(Seq) * &net.gain;
        let loss = steps.note(Loss::mean_of(&(&y * &y)));
        steps.add(loss);
    }),
    ("recomputed blocks", |net, batch, steps| {
        let x = net.blocks.forward(&embed(net, batch));
        let a = steps.note(net.head.loss(&net.norm.forward(&x), &batch.targets));
        let y = net.blocks.forward(&x.scale(0.1));
        let b = steps.note(Loss::mean_of(&(&y * &net.gain)));
        steps.add(a.and(b));
    }),
    ("a plain head over split samples", |net, batch, steps| {
        let x = net.blocks.forward(&embed(net, batch));
        let targets = net.plain_head.logits(&x);
        let a = steps.note(Loss::mean_of(&(&targets * &targets)));
        let y = net.plain_head.logits(&x.slice(Seq, Tp));
        let b = steps.note(Loss::mean_of(&y.tanh()));
        steps.add(a.and(b));
    }),
    ("in flight", |net, batch, steps| {
        let x = embed(net, batch);
        let y = x.slice(Seq, Tp).start_gather(Seq);
        let z = net.up.forward(&x).silu().contract(&net.down_own).start_reduce_scatter(Seq);
        let sum = net.up.forward(&x).sum(Ffn).start_all_reduce();
        let a = steps.note(Loss::mean_of(&(y.wait() * &x)));
        let b = steps.note(Loss::mean_of(&(net.norm.forward(&z.wait()) * &net.gain)));
        let c = steps.note(Loss::mean_of(&sum.wait().tanh()));
        steps.add(a.and(b).and(c));
    }),
];

#[test]
fn every_program_equals_one_rank() {
    for (name, program) in PROGRAMS {
        check(name, *program);
    }
}

/// Sizes that do not divide: data ranks with different numbers of sequences, and some without any.
#[test]
fn uneven_sizes_equal_one_rank() {
    let nonlinear = [
        "penalty on the mean of samples",
        "penalty on a scalar",
        "sum over samples, twice",
        "a pooled layer",
    ];
    for (name, program) in PROGRAMS {
        let is_additive = !nonlinear.contains(name) && !name.contains("then split");
        for batch in [5, 3, 1] {
            check_sizes(name, *program, (batch, 7), 1, false);
            if is_additive && batch == 5 {
                check_sizes(name, *program, (batch, 7), 2, false);
            }
        }
    }
}
