use meshwright_macros::mesh_test;
use crate::mock::{Observed, Rank};
#[::core::prelude::v1::test]
fn on_the_default_meshes() {
    fn on_the_default_meshes(rank: &Rank) -> Result<Observed, ()> {
        Ok(Observed::new(rank))
    }
    ::meshwright::__private::assert_mesh_independent(
        ["dp=2", "fsdp=2", "tp=2", "fsdp=2,tp=2"],
        on_the_default_meshes,
    )
}
#[::core::prelude::v1::test]
/// A loop of its own.
#[should_panic(expected = "differs")]
pub fn on_some_meshes() {
    fn on_some_meshes(rank: &Rank) -> Result<Observed, ()> {
        let mut observed = Observed::new(rank);
        observed.loss(rank.index() as f64);
        Ok(observed)
    }
    ::meshwright::__private::assert_mesh_independent(
        ["dp=2", "fsdp=2,tp=2"],
        on_some_meshes,
    )
}
