//! Ranks may keep different tensors over a backward: what stays recorded on one of them changes nothing for the others.

use meshwright::optim::{Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::tensor::{Objective, Pooled, Rank};

use super::harness::{
    Numbers, OTHER_MESH_CASES, Steps, assert_mesh_parity, assert_parity_on, built, gradients_of,
    params_of,
};
use super::net::*;

/// Returns a loss, and results of layers. It does not read all of them.
fn forward(net: &Net, rank: &Rank) -> (Objective<Pooled>, Vec<Stream>) {
    let batch = micro_batch(rank, (8, 6), (0, 1), true);
    let x = net.embed.forward(&batch.tokens);
    let plain = net.plain.forward(&x);
    let side = net.down.forward(&net.up.forward(&net.norm.forward(&plain)).silu());
    let y = net.blocks.forward(&net.layer_norm.forward(&(x + net.bias.forward(&plain))));
    let last = net.plain.forward(&net.norm.forward(&y));
    let after = net.blocks.forward(&net.bias.forward(&last.tanh()));
    let loss = Loss::mean_of(&(&y * &last)).into();
    (loss, vec![plain, side, y, last, after])
}

/// A rank that keeps the results of layers, read by the loss or not, reduces gradients in the order of the others.
#[test]
fn one_rank_may_keep_the_results_of_layers() {
    for keep in 0..3 {
        let body = |rank: &Rank| {
            let net = built::<Net>(rank, &sizes());
            let mut optimizer = Sgd::new(rank, &net.units, SgdOptions::default());
            let mut all = Vec::new();
            for _ in 0..4 {
                let (loss, results) = forward(&net.model, rank);
                let keeps = rank.index() == 0 || keep == 2;
                all.extend(results.into_iter().skip(keep).filter(|_| keeps));
                optimizer.step(0.1, loss.backward().reduce());
            }
            params_of("", rank, &net)
        };
        let name = format!("kept by rank 0, but for {keep}");
        assert_mesh_parity(&name, body);
        assert_parity_on(&name, &OTHER_MESH_CASES, body);
    }
}

/// Operations of a forward pass that waits for its backward do not count in that of another one, whichever is first.
#[test]
fn forward_passes_wait_for_their_backward() {
    for is_reversed in [false, true] {
        let body = |rank: &Rank| -> Numbers {
            let net = built::<Net>(rank, &sizes());
            let mut passes: Vec<_> = (0..3).map(|_| forward(&net.model, rank)).collect();
            if is_reversed {
                passes.reverse();
            }
            let mut steps = Steps::one_by_one(passes.len());
            let mut kept = Vec::new();
            for (loss, results) in passes {
                if rank.index() == 0 {
                    kept.push(results);
                }
                steps.add(loss);
            }
            gradients_of(&net, &steps.reduce().1)
        };
        assert_mesh_parity(&format!("reversed {is_reversed}"), body);
    }
}
