//! A hand-written impl that treats the sum over a split dim as complete.

use meshwright::comm::Site;
use meshwright::layout::{At, Here, SumOver};
use meshwright::tensor::SumState;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

fn whole(x: &Tensor<(Batch, Split<Hidden, Tp>)>) -> Tensor<(Batch,)> {
    let seal = <(Batch, Split<Hidden, Tp>) as SumOver<Hidden, At<1>>>::SEAL;
    let site = Site::new("sum");
    <Here as SumState<(Batch,)>>::from_value(x.sum(Hidden), site, seal)
}

fn main() {}
