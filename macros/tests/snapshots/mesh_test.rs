use meshwright_macros::mesh_test;

use crate::mock::{Observed, Rank};

#[mesh_test]
fn on_the_default_meshes(rank: &Rank) -> Result<Observed, ()> {
    Ok(Observed::new(rank))
}

/// A loop of its own.
#[mesh_test(meshes = ["dp=2", "fsdp=2,tp=2"])]
#[should_panic(expected = "differs")]
pub fn on_some_meshes(rank: &Rank) -> Result<Observed, ()> {
    let mut observed = Observed::new(rank);
    observed.loss(rank.index() as f64);
    Ok(observed)
}
