//! Stale gradients: every use of an outdated token is refused, with both lines.

use meshwright::optim::{Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::tensor::{Applicable, Pending, Rank, Reduced};

use super::harness::{MESH_CASES, MeshCase, Spot, built, mesh, on, refused, stage3};
use super::net::*;

const FILE: &str = "tests/meshes/promise/tokens.rs";

fn loss(net: &Net, rank: &Rank, index: usize) -> Loss<(Batch, Seq, Hidden)> {
    let batch = micro_batch(rank, (8, 6), (index, 2), false);
    Loss::mean_of(&net.norm.forward(&net.embed.forward(&batch.tokens)).tanh())
}

const OVERWRITES: &[&str] = &["would overwrite the gradients of `embed`", "accumulate"];

fn some_cases() -> [MeshCase; 4] {
    [mesh("1"), mesh("tp=2"), mesh("dp=2"), stage3("fsdp=2")]
}

#[test]
fn a_second_backward_is_refused() {
    for case in some_cases() {
        refused(case, FILE, OVERWRITES, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let first = loss(&net, rank, 0).backward();
            let second = loss(&net, rank, 1);
            spot.next(line!());
            let second = second.backward();
            let _ = (first.reduce().norm(), second.reduce().norm());
        });
    }
}

/// A model with a backward pass.
trait Trained {
    fn backward(&self, rank: &Rank, index: usize, spot: &Spot) -> Gradients<Pending>;
}

impl Trained for Net {
    fn backward(&self, rank: &Rank, index: usize, spot: &Spot) -> Gradients<Pending> {
        let loss = loss(self, rank, index);
        spot.next(line!());
        loss.backward()
    }
}

fn last_of<T: Trained>(model: &T, rank: &Rank, spot: &Spot) -> Gradients<Reduced> {
    let mut gradients = model.backward(rank, 0, spot);
    for index in 1..2 {
        gradients = model.backward(rank, index, spot);
    }
    gradients.reduce()
}

#[test]
fn a_second_backward_in_a_trait_is_refused() {
    refused(mesh("tp=2"), FILE, OVERWRITES, |rank, spot| {
        last_of(&built::<Net>(rank, &sizes()).model, rank, spot).norm()
    });
}

type Kept = Option<Gradients<Pending>>;

/// A trainer that stores the gradients of the last micro-batch.
struct Keeper<'a> {
    net: &'a Net,
    kept: Kept,
}

impl Keeper<'_> {
    fn one(&mut self, rank: &Rank, index: usize, spot: &Spot) {
        let loss = loss(self.net, rank, index);
        spot.next(line!());
        self.kept = Some(loss.backward());
    }
}

#[test]
fn a_second_backward_in_a_field_is_refused() {
    refused(mesh("dp=2"), FILE, OVERWRITES, |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let mut keeper = Keeper { net: &net, kept: None };
        (0..2).for_each(|index| keeper.one(rank, index, spot));
        keeper.kept.map(|gradients| gradients.reduce().norm())
    });
}

#[test]
fn a_second_backward_in_an_iterator_is_refused() {
    refused(stage3("fsdp=2"), FILE, OVERWRITES, |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let losses: Vec<_> = (0..2).map(|index| loss(&net, rank, index)).collect();
        let backward = |loss: Loss<_>| {
            spot.next(line!());
            loss.backward()
        };
        let all: Vec<_> = losses.into_iter().map(backward).collect();
        all.into_iter().map(|gradients| gradients.reduce().norm()).sum::<f64>()
    });
}

/// Another backward does not overwrite accumulated gradients or gradients of some units.
#[test]
fn overwriting_gradients_is_refused() {
    refused(mesh("1"), FILE, OVERWRITES, |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let first = loss(&net, rank, 0).accumulate();
        let second = loss(&net, rank, 1);
        spot.next(line!());
        let second = second.backward();
        let _ = (first.backward(loss(&net, rank, 1)), second.reduce().norm());
    });
    refused(mesh("tp=2"), FILE, OVERWRITES, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let first = loss(&net.model, rank, 0).only(&net.units).backward();
        let second = loss(&net.model, rank, 1);
        spot.next(line!());
        let second = second.only(&net.units).accumulate();
        let _ = (first.reduce().norm(), second.backward(loss(&net.model, rank, 0)));
    });
    refused(mesh("dp=2"), FILE, OVERWRITES, |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let first = loss(&net, rank, 0).backward();
        let second = loss(&net, rank, 1).and(loss(&net, rank, 0));
        spot.next(line!());
        let second = second.backward();
        let _ = (first.reduce().norm(), second.reduce().norm());
    });
}

const STALE: &[&str] = &["were overwritten by the backward at tests/meshes/promise/tokens.rs"];

fn two(net: &Net, rank: &Rank) -> (Gradients<Reduced>, Gradients<Reduced>) {
    let older = loss(net, rank, 0).backward().reduce();
    let newer = loss(net, rank, 1).backward().reduce();
    (older, newer)
}

#[test]
fn a_stale_norm_is_refused() {
    for case in some_cases() {
        refused(case, FILE, STALE, |rank, spot| {
            let (older, newer) = two(&built::<Net>(rank, &sizes()).model, rank);
            spot.next(line!());
            let norm = older.norm();
            norm + newer.norm()
        });
    }
}

#[test]
fn every_use_of_stale_gradients_is_refused() {
    type Use = fn(&mut Gradients<Reduced>, &meshwright::nn::Built<Net>, &Spot);
    let uses: [Use; 5] = [
        |gradients, _, spot| {
            spot.next(line!());
            gradients.clip(1.0);
        },
        |gradients, net, spot| {
            spot.next(line!());
            gradients.gather(&net.params()[0]);
        },
        |gradients, net, spot| {
            spot.next(line!());
            gradients.norm_of(&net.params()[0]);
        },
        |gradients, _, spot| {
            spot.next(line!());
            gradients.local_block_of("embed.weight");
        },
        |gradients, net, spot| {
            let rank = net.params()[0].clone();
            let _ = rank;
            spot.next(line!());
            gradients.gather(net.model.gain.handle());
        },
    ];
    for stale in uses {
        refused(mesh("tp=2"), FILE, STALE, |rank, spot| {
            let net = built::<Net>(rank, &sizes());
            let (mut older, newer) = two(&net.model, rank);
            stale(&mut older, &net, spot);
            newer.norm()
        });
    }
}

#[test]
fn a_step_of_stale_gradients_is_refused() {
    refused(mesh("dp=2"), FILE, STALE, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
        let (older, newer) = two(&net.model, rank);
        spot.next(line!());
        sgd.step(0.1, older);
        newer.norm()
    });
    // By reference, and through a helper.
    fn apply(sgd: &mut Sgd, all: &[Gradients<Reduced>], spot: &Spot) {
        for gradients in all {
            spot.next(line!());
            sgd.step(0.1, gradients);
        }
    }
    refused(stage3("fsdp=2"), FILE, STALE, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
        let (older, newer) = two(&net.model, rank);
        apply(&mut sgd, &[older, newer], spot);
    });
}

#[test]
fn discarded_gradients_and_those_pending_are_stale() {
    refused(mesh("tp=2"), FILE, &["were overwritten"], |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let older = loss(&net.model, rank, 0).accumulate();
        loss(&net.model, rank, 0).only(&[]).backward().discard();
        for unit in &net.units {
            // The other backward did not touch them.
            assert!(!unit.name().is_empty());
        }
        let older = older.backward(loss(&net.model, rank, 1)).reduce();
        let newer = loss(&net.model, rank, 1).backward().reduce();
        spot.next(line!());
        let norm = older.norm();
        norm + newer.norm()
    });
}

const LACKS: &[&str] = &["the optimizer updates", "do not contain it", "its own model"];

#[test]
fn gradients_of_another_model_are_refused() {
    for case in some_cases() {
        refused(case, FILE, LACKS, |rank, spot| {
            let [teacher, student] = [(); 2].map(|()| built::<Net>(rank, &sizes()));
            let mut sgd = Sgd::new(rank, &teacher.units, SgdOptions::default());
            let gradients = loss(&student.model, rank, 0).backward().reduce();
            spot.next(line!());
            sgd.step(0.1, gradients);
        });
    }
    // In a field, after the model was built again.
    struct Training {
        net: meshwright::nn::Built<Net>,
        sgd: Sgd,
    }
    refused(mesh("dp=2"), FILE, LACKS, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let sgd = Sgd::new(rank, &net.units, SgdOptions::default());
        let mut training = Training { net, sgd };
        training.net = built::<Net>(rank, &sizes());
        let gradients = loss(&training.net.model, rank, 0).backward().reduce();
        spot.next(line!());
        training.sgd.step(0.1, &gradients);
    });
    // Some of the units only, through a generic function.
    fn step<G: Applicable>(sgd: &mut Sgd, gradients: G, spot: &Spot) {
        spot.next(line!());
        sgd.step(0.1, gradients);
    }
    refused(mesh("tp=2"), FILE, LACKS, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
        let some = &net.units[..1];
        step(&mut sgd, loss(&net.model, rank, 0).only(some).backward().reduce(), spot);
    });
    // A loss that nothing was recorded of.
    refused(mesh("1"), FILE, LACKS, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
        let gradients = rank.evaluate(|| loss(&net.model, rank, 0)).backward().reduce();
        spot.next(line!());
        sgd.step(0.1, gradients);
    });
}

/// Two losses of one forward pass in sequence: the first backward consumes the operations.
#[test]
fn the_first_backward_consumes_the_operations() {
    for case in MESH_CASES {
        refused(case, FILE, &["no longer recorded", "a.and(b).backward()"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            let x = net.norm.forward(&net.embed.forward(&batch.tokens));
            let (first, second) = (Loss::mean_of(&x), Loss::mean_of(&x.tanh()));
            let _ = first.backward().reduce().norm();
            spot.next(line!());
            let second = second.backward();
            second.reduce().norm()
        });
    }
}

/// A loss whose parameters have changed since its forward pass.
#[test]
fn a_backward_after_the_step_is_refused() {
    let changed = &["was changed", "between its forward pass and its backward"];
    for case in some_cases() {
        refused(case, FILE, changed, |rank, spot| {
            let net = built::<Net>(rank, &sizes());
            let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
            let losses = [0, 1].map(|index| loss(&net.model, rank, index));
            for loss in losses {
                spot.next(line!());
                let gradients = loss.backward().reduce();
                sgd.step(0.1, gradients);
            }
        });
        refused(case, FILE, changed, |rank, spot| {
            let net = built::<Net>(rank, &sizes());
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            let x = net.model.blocks.forward(&net.model.embed.forward(&batch.tokens));
            let loss = Loss::mean_of(&x.tanh());
            for param in net.params().iter().filter(|param| param.path().contains("blocks.1")) {
                param.write(&param.to_local_vec());
            }
            spot.next(line!());
            let gradients = loss.backward();
            gradients.reduce().norm()
        });
    }
}

/// The gradients of a dropped model once had a norm of zero.
#[test]
fn gradients_of_a_dropped_model_are_refused() {
    const GONE: &[&str] = &["the model with `embed` was dropped after the backward"];
    refused(mesh("dp=2"), FILE, GONE, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let pending = loss(&net.model, rank, 0).backward();
        drop(net);
        spot.next(line!());
        pending.reduce().norm()
    });
    // Built in a function that returns its gradients.
    fn gradients(rank: &Rank) -> Gradients<Reduced> {
        let net = built::<Net>(rank, &sizes());
        loss(&net.model, rank, 0).backward().reduce()
    }
    refused(mesh("tp=2"), FILE, GONE, |rank, spot| {
        let reduced = gradients(rank);
        spot.next(line!());
        reduced.norm()
    });
    // In a closure, for another optimizer.
    refused(stage3("fsdp=2"), FILE, GONE, |rank, spot| {
        let make = || {
            let net = built::<Net>(rank, &sizes());
            let sgd = Sgd::new(rank, &net.units, SgdOptions::default());
            (loss(&net.model, rank, 0).backward().reduce(), sgd)
        };
        let (reduced, mut sgd) = make();
        spot.next(line!());
        sgd.step(0.1, reduced);
    });
    // Read by the path of a parameter, which is then in no unit.
    refused(mesh("1"), FILE, GONE, |rank, spot| {
        let reduced = gradients(rank);
        spot.next(line!());
        reduced.local_block_of("embed.weight")
    });
}

/// Discarding older gradients does not affect newer ones.
#[test]
fn older_gradients_are_discarded() {
    for case in MESH_CASES {
        let norms = on(case, |rank| {
            let net = built::<Net>(rank, &sizes()).model;
            let older = loss(&net, rank, 0).backward().reduce();
            let newer = loss(&net, rank, 1).backward();
            older.discard();
            let alone = newer.reduce().norm();
            let again = loss(&net, rank, 1).backward().reduce();
            (alone, again.norm())
        });
        for (alone, again) in norms.unwrap_or_else(|error| panic!("{}: {error}", case.mesh)) {
            assert_eq!(alone, again, "{}", case.mesh);
        }
    }
}
