//! A dim of samples that is said to be whole on each rank.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

impl Local for Batch {}

fn softmax(x: &Tensor<(Hidden, Batch)>) -> Tensor<(Hidden, Batch)> {
    x.softmax()
}

fn main() {}
