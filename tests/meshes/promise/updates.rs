//! Every rank applies the same updates, and ranks with the same part of a batch have the same losses. One that does
//! otherwise is an error.

use meshwright::layout::{AxisId, AxisSet};
use meshwright::optim::{Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::tensor::{Gradients, Objective, Pooled, Rank, Reduced};

use super::harness::{
    MESH_CASES, MeshCase, ONE, Steps, assert_mesh_parity, built, gradients_of, on, params_of,
};
use super::net::*;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Deviation {
    None,
    /// An update is left out.
    Skipped,
    Repeated,
    Clipped,
    /// An update with another learning rate.
    Faster,
}

pub const STEPS: u64 = 3;

/// Trains for some steps. Rank 1 deviates in one of them.
pub fn train(rank: &Rank, deviation: Deviation, at: u64) {
    let net = built::<Net>(rank, &sizes());
    let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
    for step in 0..STEPS {
        rank.set_step(step);
        let x = net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
        let loss = Loss::mean_of(&(net.model.plain.forward(&x) * &net.model.gain));
        let mut gradients: Gradients<Reduced> = loss.backward().reduce();
        if step != at || rank.index() != 1 {
            sgd.step(0.1, &gradients);
            continue;
        }
        match deviation {
            Deviation::None => sgd.step(0.1, &gradients),
            Deviation::Skipped => {}
            Deviation::Repeated => {
                sgd.step(0.1, &gradients);
                sgd.step(0.1, &gradients);
            }
            // The norm is that of the sum over ranks that hold parts, which needs all of them.
            Deviation::Clipped => {
                gradients.clip(1e-3);
                sgd.step(0.1, &gradients);
            }
            Deviation::Faster => sgd.step(0.2, &gradients),
        }
    }
}

#[test]
fn other_updates_of_one_rank_are_refused() {
    for case in MESH_CASES {
        on(case, |rank| train(rank, Deviation::None, 0)).unwrap();
        for (deviation, part) in [
            (
                Deviation::Skipped,
                "ranks 0 and 1 have applied different updates so far: 1, the last with learning rate 0.1",
            ),
            (Deviation::Repeated, "the last with learning rate 0.1"),
            (Deviation::Faster, "1, the last with learning rate 0.2"),
        ] {
            let message = on(case, |rank| train(rank, deviation, 0)).unwrap_err();
            // A rank that gathers its new parameters more often, or less, is found by that.
            let is_gathered = case.mesh.contains("fsdp") && message.contains("different calls");
            assert!(
                message.contains(part) || is_gathered,
                "{deviation:?} on {}: {message}",
                case.mesh
            );
        }
    }
    let replicas = MeshCase { mesh: "dp=2", ..ONE };
    let message = on(replicas, |rank| train(rank, Deviation::Clipped, 0)).unwrap_err();
    for part in ["have applied different updates so far", "decide on an update by numbers that all"]
    {
        assert!(message.contains(part), "{message}");
    }
}

/// Ranks that compute the same part of a batch, but not alike, in some step.
#[test]
fn losses_that_differ_between_ranks_are_refused() {
    /// Returns the loss of a rank that deviates if the flag is set.
    type Program = fn(&Net, &Stream, bool) -> Objective<Pooled>;
    let programs: [(&str, Program); 3] = [
        ("another parameter", |net, x, deviates| {
            let y = net.plain.forward(x);
            let y = if deviates { y * &net.gain } else { &net.norm.forward(&y) * &net.gain };
            Loss::mean_of(&y).into()
        }),
        ("another function", |net, x, deviates| {
            let y = net.plain.forward(x) * &net.gain;
            Loss::mean_of(&if deviates { y.tanh() } else { y.silu() }).into()
        }),
        ("another penalty", |net, x, deviates| {
            let mean = net.plain.forward(x).mean(Batch).all_reduce() * &net.gain;
            let penalty = Loss::mean_of(&if deviates { mean.tanh() } else { mean.silu() });
            Loss::mean_of(&net.plain.forward(x)).and(penalty)
        }),
    ];
    let run = |rank: &Rank, program: Program, deviates_in: Option<u64>| {
        let net = built::<Net>(rank, &sizes());
        let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
        for step in 0..3 {
            rank.set_step(step);
            let x = net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
            let is_second = rank.position(AxisSet::of(AxisId::Tp)) == 1;
            let losses = program(&net.model, &x, is_second && deviates_in == Some(step));
            sgd.step(0.1, losses.backward().reduce());
        }
    };
    for case in MESH_CASES {
        for (name, program) in programs {
            on(case, |rank| run(rank, program, None)).unwrap();
            for step in [0, 1].into_iter().filter(|_| case.mesh.contains("tp")) {
                let message = on(case, |rank| run(rank, program, Some(step))).unwrap_err();
                for part in [
                    "the losses of a step",
                    "the same on all ranks that agree",
                    "`if rank.index() == 0`",
                ] {
                    assert!(message.contains(part), "{name} on {}: {message}", case.mesh);
                }
            }
        }
    }
}

/// Losses that change no parameter may exist on one rank only: their gradients are discarded, or they are not
/// differentiated.
#[test]
fn losses_of_one_rank_without_an_update_are_accepted() {
    let probe = |rank: &Rank, net: &Net| {
        let row: Tensor<(Hidden,)> = Tensor::from_fn(rank, &[8], |at| at[0] as f32 + 1.0);
        Loss::mean_of(&(row * &net.gain))
    };
    for mesh in ["dp=2", "tp=2", "dp=2,tp=2"] {
        let outcome = meshwright::run_on(mesh, 7, |rank| {
            let net = built::<Net>(rank, &sizes());
            let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
            for step in 0..STEPS {
                rank.set_step(step);
                if rank.index() == 0 {
                    drop(Objective::from(probe(rank, &net.model)));
                    probe(rank, &net.model).accumulate().discard();
                }
                let x = net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
                let loss = Loss::mean_of(&(net.model.plain.forward(&x) * &net.model.gain));
                sgd.step(0.1, loss.backward().reduce());
            }
            if rank.index() == 0 {
                probe(rank, &net.model).accumulate().discard();
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{mesh}: {error}"));
    }
}

/// A rank that waits for others in a call of its own, while asynchronous reductions wait for it.
#[test]
fn a_rank_that_reads_numbers_alone_is_an_error() {
    type Program = fn(&Net, &Stream);
    let programs: [(&str, Program); 3] = [
        ("a loss", |net, x| {
            let _ = x.rank().evaluate(|| Loss::mean_of(&net.plain.forward(x)).reduce());
        }),
        ("a tensor", |_, x| drop(x.gather_to_vec())),
        ("the norm of a gradient", |net, x| {
            let _ = Loss::mean_of(&net.plain.forward(x)).backward().reduce().norm();
        }),
    ];
    for case in MESH_CASES {
        for (name, program) in programs {
            let run = |rank: &Rank| {
                let net = built::<Net>(rank, &sizes());
                let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
                for step in 0..3 {
                    rank.set_step(step);
                    let batch = micro_batch(rank, (8, 6), (0, 1), true);
                    let x = net.model.embed.forward(&batch.tokens);
                    if step == 1 && rank.index() == 0 {
                        program(&net.model, &x);
                    }
                    let y = net.model.blocks.forward(&net.model.plain.forward(&x));
                    sgd.step(0.1, Loss::mean_of(&(&y * &y)).backward().reduce());
                }
            };
            // On some meshes the program is none of the rank alone: it needs no other rank.
            if let Err(message) = on(case, run) {
                let is_explained = message.contains("deadlock")
                    || message.contains("different calls")
                    || message.contains("different updates");
                assert!(is_explained, "{name} on {}: {message}", case.mesh);
            } else {
                assert_eq!(case.mesh, "tp=2", "{name}");
            }
        }
    }
}

/// Units that `only` requests, and that the loss does not depend on, have the gradient zero, as without it.
#[test]
fn requested_units_that_no_gradient_reaches_are_zero() {
    assert_mesh_parity("unreached units", |rank| {
        let net = built::<Net>(rank, &sizes());
        let x = rank
            .evaluate(|| net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens));
        let blocks: Vec<_> = (net.units.iter())
            .filter(|unit| unit.name().starts_with("blocks"))
            .map(std::rc::Rc::clone)
            .collect();
        assert_eq!(blocks.len(), 2);
        let mut sgd = Sgd::new(rank, &blocks, SgdOptions::default());
        // Through the root unit only, which is not requested.
        let loss = Loss::mean_of(&net.model.plain.forward(&x));
        sgd.step(0.1, loss.only(&blocks).backward().reduce());
        let mut steps = Steps::default();
        let y = net.model.blocks.forward(&x);
        steps.add(Loss::mean_of(&(&y * &y)));
        let mut numbers = gradients_of(&net, &steps.reduce().1);
        numbers.extend(params_of("parameter", rank, &net));
        numbers
    });
}

/// A norm that is NaN makes the gradients NaN, as in PyTorch: finite elements are no more right than others.
#[test]
fn clipping_by_a_norm_that_is_nan_makes_gradients_nan() {
    for case in [ONE, MESH_CASES[0], MESH_CASES[1], MESH_CASES[4]] {
        let elements = on(case, |rank| {
            let net = built::<Net>(rank, &sizes());
            let x = net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
            let y = net.model.plain.forward(&x) * &net.model.gain;
            let factor =
                Stream::from_fn(rank, &x.sizes(), |at| if at[2] == 3 { f32::NAN } else { 1.0 });
            let mut gradients = Loss::mean_of(&(y * factor)).backward().reduce();
            let of_gain =
                |gradients: &Gradients<Reduced>| gradients.gather(net.model.gain.handle());
            let before = of_gain(&gradients);
            assert!(gradients.clip(1.0).is_nan());
            (before, of_gain(&gradients))
        });
        for (before, after) in elements.unwrap() {
            assert_eq!(before.iter().filter(|x| x.is_nan()).count(), 1);
            assert!(after.iter().all(|x| x.is_nan()), "{after:?}");
        }
    }
}
