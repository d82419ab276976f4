//! Run-time checks of mistakes that types cannot detect: one error each, at the line of the mistake.

mod arguments;
mod calls;
mod declared_values;
mod operands;

use meshwright::layout::{AxisId, AxisSet};
use meshwright::prelude::*;
use meshwright::tensor::Rank;

use super::harness::built;
use super::net::*;

/// Reduces the gradients of a loss on `x`, which ends the first step.
fn first_step(rank: &Rank, x: impl FnOnce(&Net, &Stream) -> Stream) -> f64 {
    let net = built::<Net>(rank, &sizes()).model;
    let batch = micro_batch(rank, (8, 6), (0, 1), false);
    let x = x(&net, &net.embed.forward(&batch.tokens));
    Loss::mean_of(&net.plain.forward(&x)).backward().reduce().norm()
}

fn tp(rank: &Rank) -> usize {
    rank.position(AxisSet::of(AxisId::Tp))
}

/// Creates a rank of another mesh on this thread.
fn second_world() -> Rank {
    let comms = meshwright::comm::launch(&"1".parse().expect("a mesh"), Ok::<_, String>);
    let backend = meshwright::backend::cpu::CpuBackend::new(1).expect("threads start");
    Rank::new(comms.expect("a second world").remove(0), Box::new(backend), 3)
}
