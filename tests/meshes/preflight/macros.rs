//! `#[mesh_test]`, as a program writes it.

use meshwright::mesh_test;
use meshwright::prelude::*;
use meshwright::testing::Observed;

use super::{stream, train};

#[mesh_test]
fn on_default_meshes(rank: &Rank) -> meshwright::Result<Observed> {
    train(rank, |net, _| Loss::mean_of(&net.down.forward(&net.up.forward(&stream(rank)).silu())))
}

#[mesh_test(meshes = ["cp=2", "dp=2,cp=2"])]
fn on_named_meshes(rank: &Rank) -> meshwright::Result<Observed> {
    train(rank, |net, _| Loss::mean_of(&net.down.forward(&net.up.forward(&stream(rank)).tanh())))
}

#[mesh_test(meshes = ["tp=2"])]
#[should_panic(expected = "tp=2 differs from one rank in step 1, along tp")]
fn that_fails(rank: &Rank) -> meshwright::Result<Observed> {
    let mut observed = Observed::new(rank);
    observed.loss(rank.degree(meshwright::layout::AxisId::Tp) as f64);
    Ok(observed)
}

#[mesh_test(meshes = ["dp=2"])]
#[should_panic(expected = "on mesh 1: no data")]
fn that_cannot_run(_: &Rank) -> meshwright::Result<Observed> {
    Err(meshwright::Error::Input("no data".to_owned()))
}
