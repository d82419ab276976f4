//! Token ids, numbers, sizes and units that would give wrong results.

use std::rc::Rc;

use meshwright::layout::AxisSet;
use meshwright::optim::{Ema, Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::tensor::{Rank, Unit};

use super::super::harness::{built, mesh, on, refused, stage3};
use super::super::net::*;
use super::second_world;

const FILE: &str = "tests/meshes/promise/checks/arguments.rs";

/// Token ids without a row on any rank.
#[test]
fn ids_beyond_the_vocabulary_are_refused() {
    let beyond = &["id 12 is beyond the vocabulary of 11"];
    for mesh in [mesh("1"), mesh("tp=2"), stage3("fsdp=2")] {
        let wrong = |rank: &Rank| -> Ids {
            let rows = 8 / rank.degree_of(AxisSet::DATA);
            Tokens::from_block(rank, &[8, 6], &vec![12; rows * 6])
        };
        refused(mesh, FILE, beyond, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let ids = wrong(rank);
            spot.next(line!());
            let x = net.embed.forward(&ids);
            x.to_local_vec()
        });
        refused(mesh, FILE, beyond, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            let (x, ids) = (net.embed.forward(&batch.tokens), wrong(rank));
            spot.next(line!());
            let loss = net.head.loss(&x, &ids);
            loss.reduce().value()
        });
        refused(mesh, FILE, beyond, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            let (x, ids) = (net.embed.forward(&batch.tokens), wrong(rank));
            let logits = net.head.logits(&x);
            spot.next(line!());
            let loss = net.entropy.forward(&logits, &ids);
            loss.reduce().value()
        });
    }
    // A table with an empty shard.
    refused(mesh("tp=2"), FILE, &["have no elements on this rank"], |rank, spot| {
        spot.next(line!());
        let ids: Tokens<(Batch, Split<Seq, Tp>)> = Tokens::from_rows(rank, &[4, 1], 0, &[]);
        ids.sizes()
    });
    // In a stack of plain layers.
    refused(mesh("1"), FILE, &["different meshes"], |rank, spot| {
        #[model]
        struct Norms {
            norms: Stack<RmsNorm<Hidden>>,
        }
        let second = second_world();
        let norms = built::<Norms>(&second, &sizes()).model;
        let x: Stream = Tensor::from_fn(rank, &[2, 3, 8], |_| 1.0);
        spot.next(line!());
        let y = norms.norms.forward(&x);
        y.to_local_vec()
    });
}

/// Numbers, sizes and units that would give wrong results.
#[test]
fn arguments_out_of_range_are_refused() {
    let gradients = |rank: &Rank| {
        let net = built::<Net>(rank, &sizes());
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        Loss::mean_of(&net.model.embed.forward(&batch.tokens)).backward().reduce()
    };
    for norm in [-1.0, f64::NAN] {
        refused(mesh("dp=2"), FILE, &["to a norm of at least 0, not"], |rank, spot| {
            let mut gradients = gradients(rank);
            spot.next(line!());
            gradients.clip(norm)
        });
    }
    for decay in [1.0, -0.5, f64::NAN] {
        refused(mesh("dp=2"), FILE, &["the decay of an average must be"], |rank, spot| {
            let units = built::<Net>(rank, &sizes()).units;
            spot.next(line!());
            drop(Ema::new(rank, &units, decay));
        });
    }
    let twice = &["`norm.weight`", "is given twice"];
    refused(mesh("dp=2"), FILE, twice, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let has_norm =
            |unit: &&Rc<Unit>| unit.params().iter().any(|param| param.path() == "norm.weight");
        let norm = net.units.iter().find(has_norm).unwrap();
        let units = [norm, net.units.last().unwrap(), norm].map(Rc::clone);
        spot.next(line!());
        drop(Sgd::new(rank, &units, SgdOptions::default()));
    });
    refused(mesh("dp=2"), FILE, &["is not made of the rows of [4, 2]"], |rank, spot| {
        spot.next(line!());
        drop(Ids::from_rows(rank, &[4, 2], usize::MAX, &[1, 2]));
    });
    for sizes in [[1 << 31, 1 << 31, 8], [usize::MAX, 2, 2]] {
        refused(mesh("dp=2"), FILE, &["is larger than any memory"], |rank, spot| {
            spot.next(line!());
            drop(Stream::from_fn(rank, &sizes, |_| 0.0));
        });
    }
    type Change = fn(&mut Sizes);
    let changes: [(&str, Change); 3] = [
        ("`init_std` is NaN", |sizes| sizes.init_std = f32::NAN),
        ("`init_std` is -1", |sizes| sizes.init_std = -1.0),
        ("`norm_eps` is -0.5", |sizes| sizes.norm_eps = -0.5),
    ];
    for (message, change) in changes {
        let mut sizes = sizes();
        change(&mut sizes);
        let result = on(mesh("dp=2"), |rank| {
            meshwright::nn::build::<Net>(rank, &sizes).map(drop).unwrap_err().to_string()
        });
        assert!(result.unwrap().iter().all(|error| error.contains(message)), "{message}");
    }
}
