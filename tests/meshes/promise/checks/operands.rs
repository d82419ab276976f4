//! Operands of one operation that do not belong together.

use meshwright::prelude::*;

use super::super::harness::{Spot, built, mesh, on, refused};
use super::super::net::*;
use super::second_world;

const FILE: &str = "tests/meshes/promise/checks/operands.rs";

const TARGETS: &[&str] = &["its targets", "make both of the same sizes"];

#[test]
fn targets_of_other_sizes_are_refused() {
    for mesh in [mesh("1"), mesh("tp=2"), mesh("dp=2")] {
        refused(mesh, FILE, TARGETS, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [long, short] = [6, 5].map(|seq| micro_batch(rank, (8, seq), (0, 1), false));
            let x = net.embed.forward(&long.tokens);
            spot.next(line!());
            let loss = net.head.loss(&x, &short.targets);
            loss.backward().reduce().norm()
        });
        // Targets of another micro-batch, through a generic function.
        fn loss<H: Heading>(
            head: &H,
            x: &Stream,
            targets: &Ids,
            spot: &Spot,
        ) -> Loss<(Batch, Seq)> {
            head.of(x, targets, spot)
        }
        trait Heading {
            fn of(&self, x: &Stream, targets: &Ids, spot: &Spot) -> Loss<(Batch, Seq)>;
        }
        impl Heading for Net {
            fn of(&self, x: &Stream, targets: &Ids, spot: &Spot) -> Loss<(Batch, Seq)> {
                spot.next(line!());
                self.plain_head.loss(x, targets)
            }
        }
        refused(mesh, FILE, TARGETS, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [first, second] = [0, 1].map(|index| micro_batch(rank, (8, 6), (index, 2), false));
            let x = net.embed.forward(&first.tokens);
            loss(&net, &x, &second.targets, spot).backward().reduce().norm()
        });
        // Through `CrossEntropy`.
        refused(mesh, FILE, &["their targets", "make both"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [first, second] = [0, 1].map(|index| micro_batch(rank, (8, 6), (index, 2), false));
            let logits = net.head.logits(&net.embed.forward(&first.tokens));
            spot.next(line!());
            let loss = net.entropy.forward(&logits, &second.targets);
            loss.backward().reduce().norm()
        });
        // Through an iterator with mismatched pairs.
        refused(mesh, FILE, TARGETS, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let batches = [0, 1].map(|index| micro_batch(rank, (8, 6), (index, 2), false));
            let pairs = batches.iter().zip(batches.iter().skip(1));
            let losses = pairs.map(|(batch, next)| {
                let x = net.embed.forward(&batch.tokens);
                spot.next(line!());
                net.head.loss(&x, &next.targets)
            });
            losses.last().expect("there is one").reduce().value()
        });
    }
}

#[test]
fn tensors_of_different_micro_batches_are_refused() {
    let sizes_differ = &["make both of the same sizes, and of the same micro-batch"];
    for mesh in [mesh("1"), mesh("dp=2"), mesh("tp=2")] {
        refused(mesh, FILE, sizes_differ, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let streams = [0, 1].map(|index| {
                net.embed.forward(&micro_batch(rank, (8, 6), (index, 2), false).tokens)
            });
            spot.next(line!());
            let sum = &streams[0] + &streams[1];
            sum.to_local_vec()
        });
        refused(mesh, FILE, sizes_differ, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let x = net.embed.forward(&micro_batch(rank, (8, 6), (1, 2), false).tokens);
            // Made on the rank of whole batches.
            let mask: Stream = Tensor::from_fn(rank, &x.sizes(), |_| 1.0);
            spot.next(line!());
            let product = &x * &mask;
            product.to_local_vec()
        });
        refused(mesh, FILE, &["the queries have a batch of"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [long, short] = [6, 5].map(|seq| micro_batch(rank, (8, seq), (0, 1), false));
            let [x, y] = [&long, &short].map(|batch| net.embed.forward(&batch.tokens));
            let (q, k, v) = (net.q.forward(&x), net.k.forward(&y), net.v.forward(&y));
            spot.next(line!());
            let out = net.attention.forward(&(q, k, v));
            out.to_local_vec()
        });
        refused(mesh, FILE, &["the left partial sum"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [a, b] = [6, 5].map(|seq| {
                let x = net.embed.forward(&micro_batch(rank, (8, seq), (0, 1), false).tokens);
                net.up.forward(&x).contract(&net.down_own)
            });
            spot.next(line!());
            let sum = a + b;
            sum.all_reduce().to_local_vec()
        });
    }
}

/// Shards of heads with query heads that do not match key-value heads.
#[test]
fn mismatched_heads_are_refused() {
    refused(
        mesh("tp=2"),
        FILE,
        &["query heads", "must be divisible by the degree"],
        |rank, spot| {
            let mut sizes = Sizes::new()
                .with(Hidden, 8)
                .with(Heads, 6)
                .with(KvHeads, 3)
                .with(HeadDim, 4)
                .with(Layers, 1);
            sizes.init_std = 0.2;
            #[model]
            struct Whole {
                q: Linear<Hidden, (Heads, HeadDim)>,
                k: Linear<Hidden, (KvHeads, HeadDim)>,
                attention: Attention<Heads, KvHeads, HeadDim>,
            }
            let net = built::<Whole>(rank, &sizes).model;
            let x: Stream = Tensor::from_fn(rank, &[2, 5, 8], |at| at[2] as f32 * 0.1);
            let (q, k) = (net.q.forward(&x).slice(Heads, Tp), net.k.forward(&x).slice(KvHeads, Tp));
            spot.next(line!());
            let out = net.attention.forward(&(q, k.clone(), k));
            out.to_local_vec()
        },
    );
    // A model with indivisible heads is not built.
    let result = on(mesh("tp=2"), |rank| {
        let sizes = sizes().with(KvHeads, 1);
        meshwright::nn::build::<Net>(rank, &sizes).map(|_| ()).map_err(|error| error.to_string())
    });
    let message = result.expect("no rank panics")[0].clone().expect_err("it is refused");
    assert!(message.contains("KvHeads = 1 is not divisible by tp = 2"), "{message}");
}

/// Models and tensors of two ranks in one thread.
#[test]
fn operands_of_two_meshes_are_refused() {
    type Use = fn(&Net, &Net, &Batched, &Spot) -> Vec<f32>;
    let uses: [Use; 7] = [
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = other.norm.forward(&x);
            y.to_local_vec()
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = other.layer_norm.forward(&x);
            y.to_local_vec()
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = other.plain.forward(&x);
            y.to_local_vec()
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = &x * &other.gain;
            y.to_local_vec()
        },
        |_, other, batch, spot| {
            spot.next(line!());
            let y = other.embed.forward(&batch.tokens);
            y.to_local_vec()
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let loss = other.head.loss(&x, &batch.targets);
            vec![loss.reduce().value() as f32]
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = other.bias.forward(&x);
            y.to_local_vec()
        },
    ];
    for one in uses {
        refused(mesh("1"), FILE, &["different meshes", "the same `Rank`"], |rank, spot| {
            let second = second_world();
            let own = built::<Net>(rank, &sizes()).model;
            let other = built::<Net>(&second, &sizes()).model;
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            one(&own, &other, &batch, spot)
        });
    }
}
