//! Programs with many distributions of tensors, each compared with one rank, in one, two and three micro-batches.

use meshwright::prelude::*;
use meshwright::tensor::{Objective, Pooled};

use super::harness::{
    Numbers, OTHER_MESH_CASES, Steps, assert_mesh_parity, assert_parity_on, built, numbers,
};
use super::net::*;

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
    assert_mesh_parity(&name, |rank| {
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
        let mask = y.like(|at| ((at[1] + at[2]) % 3) as f32);
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

/// Dropout on tensors in every split; the masks are a function of the index in the global tensor.
const DROPPING: &[(&str, Program)] = &[
    ("dropped whole and split", |net, batch, steps| {
        let x = embed(net, batch);
        let y = net.dropout.forward(&net.plain.forward(&x));
        let a = Loss::mean_of(&(&y * &x));
        let b = Loss::mean_of(&net.dropout.forward(&x.slice(Seq, Tp)));
        let c = Loss::mean_of(&net.dropout.forward(&x.slice(Batch, Tp)).tanh());
        let d = Loss::mean_of(&net.dropout.forward(&net.up.forward(&y)).silu());
        steps.add(a.and(b).and(c).and(d));
    }),
    ("dropped heads, and in recomputed blocks", |net, batch, steps| {
        let x = net.blocks.forward(&embed(net, batch));
        let q = net.dropout.forward(&net.q.forward(&x));
        let y = net.dropout.forward(&net.down_seq.forward(&net.up.forward(&x)));
        steps.add(Loss::mean_of(&(&q * &q)).and(Loss::mean_of(&y.tanh())));
    }),
];

#[test]
fn dropout_masks_depend_on_global_indices() {
    for (name, program) in DROPPING {
        for (size, count) in [((12, 6), 1), ((12, 7), 3), ((5, 7), 2)] {
            let mut sizes = sizes();
            sizes.dropout = 0.4;
            assert_mesh_parity(&format!("{name}, {size:?} in {count}"), |rank| {
                let net = built::<Net>(rank, &sizes);
                let mut steps = Steps::default();
                for index in 0..count {
                    program(
                        &net.model,
                        &micro_batch(rank, size, (index, count), false),
                        &mut steps,
                    );
                }
                numbers(&net, steps)
            });
        }
    }
}

/// Programs over axes other than tp, and splits of whole tensors over one of the data axes.
const OTHER_AXES: &[(&str, Program)] = &[
    ("positions over cp", |net, batch, steps| {
        let x = net.plain.forward(&embed(net, batch)).slice(Seq, Cp);
        let y = net.norm.forward(&net.plain.forward(&x)) * &net.gain;
        let mean = y.mean(Seq).all_reduce();
        let loss = steps.note(Loss::mean_of(&(&y * &y)));
        let whole = steps.note(Loss::mean_of(&(net.bias.forward(&y.gather(Seq)).tanh())));
        steps.add(loss.and(whole).and(Loss::mean_of(&(&mean * &net.gain))));
    }),
    ("a region inside of a split over cp", |net, batch, steps| {
        let x = embed(net, batch).slice(Seq, Cp).gather(Seq);
        let y = net.down.forward(&net.up.forward(&x).silu());
        let z = net.up.forward(&y).sum(Ffn).all_reduce().slice(Seq, Cp).tanh();
        steps.add(steps_of(&y).and(Loss::mean_of(&z)));
    }),
    ("what data ranks share, split over dp", |net, batch, steps| {
        let pooled = net.plain.forward(&embed(net, batch)).mean(Batch).all_reduce();
        let y = net.norm.forward(&net.plain.forward(&pooled.slice(Seq, Dp)));
        let features = pooled.slice(Hidden, Dp).tanh().sum(Hidden).all_reduce();
        let z = net.bias.forward(&y.gather(Seq));
        steps.add(Loss::mean_of(&(&y * &y)).and(Loss::mean_of(&features)).and(Loss::mean_of(&z)));
    }),
    ("what data ranks share, split over fsdp", |net, batch, steps| {
        let pooled = net.plain.forward(&embed(net, batch)).mean(Batch).all_reduce();
        let y = net.norm.forward(&net.plain.forward(&pooled.slice(Seq, Fsdp)));
        let mean = y.mean(Seq).all_reduce() * &net.gain;
        steps.add(Loss::mean_of(&(&y * &y)).and(Loss::mean_of(&(&mean * &mean))));
    }),
    ("what data ranks share, split over ep", |net, batch, steps| {
        let pooled = net.plain.forward(&embed(net, batch)).mean(Batch).all_reduce();
        let y = net.layer_norm.forward(&net.plain.forward(&pooled.slice(Seq, Ep)));
        let z = net.bias.forward(&y.gather(Seq)).silu().slice(Hidden, Ep).mean(Hidden).all_reduce();
        steps.add(Loss::mean_of(&y.silu()).and(Loss::mean_of(&z.tanh())));
    }),
    ("two axes", |net, batch, steps| {
        let pooled = net.plain.forward(&embed(net, batch)).mean(Batch).all_reduce();
        let y = net.plain.forward(&pooled).slice(Seq, Tp).tanh().gather(Seq).slice(Seq, Cp);
        steps.add(Loss::mean_of(&(net.norm.forward(&y) * &net.gain)));
    }),
];

fn steps_of(x: &Stream) -> Objective<Pooled> {
    Loss::mean_of(&(x * x)).into()
}

#[test]
fn other_axes_equal_one_rank() {
    for (name, program) in OTHER_AXES {
        for (size, count) in [((8, 6), 1), ((8, 7), 2)] {
            let name = format!("{name}, {size:?} in {count} micro-batches");
            assert_parity_on(&name, &OTHER_MESH_CASES, |rank| {
                let net = built::<Net>(rank, &sizes());
                let mut steps = Steps::default();
                for index in 0..count {
                    program(&net.model, &micro_batch(rank, size, (index, count), true), &mut steps);
                }
                numbers(&net, steps)
            });
        }
    }
}

/// Numbers on the host: of the global tensor, and means over all ranks.
#[test]
fn host_numbers_are_of_the_global_tensor() {
    use meshwright::tensor::Metric;
    for (size, count) in [((12, 7), 1), ((12, 7), 3), ((5, 7), 1), ((1, 3), 1)] {
        assert_mesh_parity(&format!("host numbers of {size:?} in {count}"), |rank| {
            let net = built::<Net>(rank, &sizes());
            let mut all = Numbers::new();
            for index in 0..count {
                let batch = micro_batch(rank, size, (index, count), size.0 % 2 == 0);
                let x = embed(&net.model, &batch);
                let inner = net.model.up.forward(&x);
                let mut note =
                    |name: &str, values| all.insert(format!("{name} of {index}"), values);
                note("whole", x.gather_to_vec());
                note("positions", x.slice(Seq, Tp).tanh().gather_to_vec());
                note("samples", x.slice(Batch, Tp).scale(2.0).gather_to_vec());
                note("inner", inner.gather_to_vec());
                note("pooled", x.mean(Batch).all_reduce().gather_to_vec());
                let means = [
                    Metric::mean_of(&x).reduce(),
                    Metric::mean_of(&inner).reduce(),
                    Metric::mean_of(&x.slice(Seq, Tp)).reduce(),
                    Metric::mean_of(&x.slice(Batch, Tp)).reduce(),
                    Metric::mean_of(&x.mean(Batch).all_reduce()).reduce(),
                    hits(&x).reduce(),
                    hits(&inner).reduce(),
                    hits(&x.slice(Seq, Tp)).reduce(),
                ];
                note("means", means.map(|mean| mean.value() as f32).to_vec());
                note("counts", means.map(|mean| mean.count() as f32).to_vec());
            }
            all
        });
    }
}

/// Counts positive elements.
fn hits<S: meshwright::layout::Dims>(x: &Tensor<S>) -> meshwright::tensor::Metric<S> {
    let local = x.to_local_vec();
    let hits = local.iter().filter(|value| **value > 0.0).count();
    meshwright::tensor::Metric::of(x, hits as f64, local.len() as u64)
}

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

/// A parameter set from its global elements is the same on every mesh and for every split.
#[test]
fn a_global_write_reaches_every_rank() {
    assert_mesh_parity("written globally", |rank| {
        let net = built::<Net>(rank, &sizes());
        let mut all = Numbers::new();
        for param in net.params() {
            let len = param.global_len();
            assert_eq!(param.sizes().iter().product::<usize>(), len);
            let values: Vec<f32> = (0..len).map(|index| (index as f32 * 0.37).sin()).collect();
            param.write_global(&values);
            assert_eq!(param.gather(rank), values, "{}", param.path());
            all.insert(param.path().to_owned(), values);
        }
        let x = embed(&net.model, &micro_batch(rank, (4, 6), (0, 1), true));
        let y = net.model.down.forward(&net.model.up.forward(&x).silu());
        let loss = Loss::mean_of(&(&y * &net.model.gain)).reduce();
        all.insert("loss".into(), vec![loss.value() as f32]);
        all
    });
}
