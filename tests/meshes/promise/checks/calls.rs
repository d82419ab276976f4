//! Collectives in another order, and axes of the mesh without a use.

use meshwright::prelude::*;

use super::super::harness::{Spot, built, mesh, refused};
use super::super::net::*;
use super::{first_step, tp};

const FILE: &str = "tests/meshes/promise/checks/calls.rs";

/// Collectives of one field, with the same kind and size, in another order on one rank.
#[test]
fn collectives_in_another_order_are_refused() {
    let order = &["different lines", "control flow"];
    type Program = fn(&Net, &Stream, bool, &Spot) -> Vec<f32>;
    let programs: [Program; 4] = [
        |net, x, first, spot| {
            let inner = net.up.forward(x);
            let (a, b) = (inner.tanh().sum(Ffn), inner.silu().sum(Ffn));
            if first {
                spot.next(line!());
                let a = a.all_reduce();
                (a + b.all_reduce()).to_local_vec()
            } else {
                let b = b.all_reduce();
                (a.all_reduce() + b).to_local_vec()
            }
        },
        |_, x, first, spot| {
            let (a, b) = (x.slice(Seq, Tp), x.tanh().slice(Seq, Tp));
            if first {
                spot.next(line!());
                let a = a.gather(Seq);
                (a - b.gather(Seq)).to_local_vec()
            } else {
                let b = b.gather(Seq);
                (a.gather(Seq) - b).to_local_vec()
            }
        },
        |net, x, first, spot| {
            let (a, b) = (net.up.forward(x), net.up.forward(x).tanh());
            if first {
                spot.next(line!());
                let a = net.down.forward(&a);
                (a - net.down.forward(&b)).to_local_vec()
            } else {
                let b = net.down.forward(&b);
                (net.down.forward(&a) - b).to_local_vec()
            }
        },
        |net, x, first, spot| {
            let inner = net.up.forward(x);
            let (a, b) = (inner.contract(&net.down_own), inner.tanh().contract(&net.down_own));
            if first {
                spot.next(line!());
                let a = a.reduce_scatter(Seq);
                (a - b.reduce_scatter(Seq)).to_local_vec()
            } else {
                let b = b.reduce_scatter(Seq);
                (a.reduce_scatter(Seq) - b).to_local_vec()
            }
        },
    ];
    for program in programs {
        refused(mesh("tp=2"), FILE, order, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            program(&net, &net.embed.forward(&batch.tokens), tp(rank) == 0, spot)
        });
    }
}

/// An unused axis of the mesh.
#[test]
fn an_unused_axis_is_refused() {
    for (mesh, axis) in [("cp=2", "cp=2"), ("dp=2,cp=2", "cp=2"), ("pp=2", "pp=2")] {
        let result = meshwright::run_on(mesh, 0, |rank| Ok(first_step(rank, |_, x| x.clone())));
        let message = result.expect_err("it is refused").to_string();
        assert!(message.contains(axis) && message.contains("leave"), "{message}");
    }
}
