//! A hand-written impl that makes a dim of samples whole on each rank.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

impl Local for Batch {}

fn softmax(x: &Tensor<(Hidden, Batch)>) -> Tensor<(Hidden, Batch)> {
    x.softmax()
}

fn main() {}
