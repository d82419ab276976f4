//! Values that are declared the same on all ranks, or the same for an index, and are not.

use meshwright::layout::AxisSet;
use meshwright::prelude::*;
use meshwright::tensor::Rank;

use super::super::harness::{Spot, built, mesh, on, refused, stage3};
use super::super::net::*;
use super::{first_step, tp};

const FILE: &str = "tests/meshes/promise/checks/declared_values.rs";

const DIFFERS: &[&str] = &["is declared the same on all ranks", "of different numbers", "from_fn"];

type Mask = Tensor<(Batch, Seq, Hidden)>;

fn rank_mask<S: meshwright::layout::Shape>(x: &Tensor<S>, spot: &Spot) -> Tensor<S> {
    let index = tp(x.rank()) as f32;
    spot.next(line!());
    Tensor::from_fn(x.rank(), &x.sizes(), |_| index)
}

struct Cached {
    mask: Mask,
}

#[test]
fn rank_dependent_tensors_are_refused() {
    for mesh in [mesh("tp=2"), mesh("dp=2,tp=2"), stage3("fsdp=2,tp=2")] {
        refused(mesh, FILE, DIFFERS, |rank, spot| {
            first_step(rank, |_, x| {
                let index = tp(rank) as f32;
                spot.next(line!());
                let mask: Mask = Tensor::from_fn(x.rank(), &x.sizes(), |_| index);
                x * mask
            })
        });
        refused(mesh, FILE, DIFFERS, |rank, spot| first_step(rank, |_, x| x * rank_mask(x, spot)));
        refused(mesh, FILE, DIFFERS, |rank, spot| {
            first_step(rank, |_, x| {
                let block = vec![tp(rank) as f32; x.to_local_vec().len()];
                spot.next(line!());
                let cached = Cached { mask: Tensor::from_block(x.rank(), &x.sizes(), &block) };
                x + &cached.mask
            })
        });
        refused(mesh, FILE, DIFFERS, |rank, spot| {
            first_step(rank, |_, x| {
                let add = |x: &Stream, index: usize| {
                    let shift = (index * tp(rank)) as f32;
                    spot.next(line!());
                    x + x.like(|_| shift)
                };
                (1..2).fold(x.clone(), |x, index| add(&x, index))
            })
        });
    }
}

/// A tensor typed as whole from the values of one rank's shard.
#[test]
fn a_shard_typed_as_whole_is_refused() {
    refused(mesh("tp=2"), FILE, DIFFERS, |rank, spot| {
        first_step(rank, |net, x| {
            let inner = net.up.forward(x);
            let own: Vec<f32> =
                inner.to_local_vec().into_iter().cycle().take(x.to_local_vec().len()).collect();
            spot.next(line!());
            let copy: Mask = Tensor::from_block(x.rank(), &x.sizes(), &own);
            x + copy
        })
    });
    refused(mesh("tp=2"), FILE, DIFFERS, |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let ids = vec![tp(rank) as u32; 48 / rank.degree_of(AxisSet::DATA)];
        spot.next(line!());
        let tokens: Ids = Tokens::from_block(rank, &[8, 6], &ids);
        Loss::mean_of(&net.embed.forward(&tokens)).backward().reduce().norm()
    });
    refused(mesh("tp=2"), FILE, DIFFERS, |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        let ids = vec![tp(rank) as u32; 48 / rank.degree_of(AxisSet::DATA)];
        let x = net.embed.forward(&batch.tokens);
        spot.next(line!());
        let targets: Targets<(Batch, Seq)> = Tokens::from_rows(rank, &[8, 6], 0, &ids);
        net.head.loss(&x, &targets).backward().reduce().norm()
    });
    refused(mesh("dp=2"), FILE, DIFFERS, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        let gain = net.model.gain.handle();
        let block = vec![1.0 + rank.index() as f32; 8];
        spot.next(line!());
        gain.write(&block);
        let x = net.model.embed.forward(&batch.tokens) * &net.model.gain;
        Loss::mean_of(&x).backward().reduce().norm()
    });
}

/// Elements that follow from the number of calls: each rank would have the numbers of other elements.
#[test]
fn elements_of_a_shared_generator_are_refused() {
    let parts = &["for the same index later", "has to follow from its index"];
    for mesh in [mesh("1"), mesh("dp=2"), mesh("tp=2")] {
        refused(mesh, FILE, parts, |rank, spot| {
            first_step(rank, |_, x| {
                let calls = std::cell::Cell::new(0);
                let count = |_: &[usize]| {
                    calls.set(calls.get() + 1);
                    calls.get() as f32
                };
                spot.next(line!());
                x + x.like(count)
            })
        });
        let not_a_number = |rank: &Rank| first_step(rank, |_, x| x * x.like(|_| f32::NAN));
        assert!(on(mesh, not_a_number).is_ok());
    }
}

/// Tensors created at different lines on different ranks.
#[test]
fn tensors_made_at_different_lines_are_refused() {
    let other = &["made it at another line"];
    refused(mesh("tp=2"), FILE, other, |rank, spot| {
        first_step(rank, |_, x| {
            let mask: Mask = if tp(rank) == 0 {
                spot.next(line!());
                Tensor::from_fn(x.rank(), &x.sizes(), |_| 1.0)
            } else {
                Tensor::from_fn(x.rank(), &x.sizes(), |_| 2.0)
            };
            x * mask
        })
    });
}

/// Rank-dependent scale factors.
#[test]
fn rank_dependent_numbers_are_refused() {
    let differs = &["is declared the same on all ranks", "of different numbers"];
    refused(mesh("tp=2"), FILE, differs, |rank, spot| {
        first_step(rank, |_, x| {
            let factor = 1.0 + tp(rank) as f32;
            spot.next(line!());
            x.scale(factor)
        })
    });
    refused(mesh("tp=2"), FILE, differs, |rank, spot| {
        first_step(rank, |_, x| {
            let shift = tp(rank) as f32;
            spot.next(line!());
            1.0 * x + shift
        })
    });
    refused(mesh("dp=2,tp=2"), FILE, differs, |rank, spot| {
        first_step(rank, |net, x| {
            let partial = net.up.forward(x).contract(&net.down_own);
            let factor = 0.5 + tp(rank) as f32;
            spot.next(line!());
            let partial = partial * factor;
            partial.all_reduce()
        })
    });
    refused(mesh("dp=2"), FILE, differs, |rank, spot| {
        first_step(rank, |_, x| {
            let mean = x.mean(Batch).all_reduce();
            let factor = 1.0 + rank.index() as f32;
            spot.next(line!());
            let mean = mean / factor;
            x.like(|_| 1.0) * x + x * mean.to_local_vec()[0]
        })
    });
    // Values that are distributed over the ranks may be different.
    let norms = on(mesh("dp=2"), |rank| first_step(rank, |_, x| x * (1.0 + rank.index() as f32)));
    assert!(norms.is_ok());
}

/// Ranks with different seeds, sizes or steps.
#[test]
fn ranks_of_different_settings_are_refused() {
    let differs = &["is declared the same on all ranks"];
    refused(mesh("dp=2"), FILE, differs, |rank, spot| {
        let mut sizes = sizes();
        sizes.init_std = 0.1 + 0.1 * rank.index() as f32;
        spot.next(line!());
        let net = meshwright::nn::build::<Net>(rank, &sizes).map_err(|error| error.to_string());
        let net = net.expect("it is built").model;
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        Loss::mean_of(&net.embed.forward(&batch.tokens)).backward().reduce().norm()
    });
    refused(mesh("dp=2"), FILE, &["the training step", "set_step"], |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        rank.set_step(rank.index() as u64);
        let gradients = Loss::mean_of(&net.embed.forward(&batch.tokens)).backward();
        spot.next(line!());
        let gradients = gradients.reduce();
        gradients.norm()
    });
}
