//! A maximum over the samples of a micro-batch.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

fn largest(x: &Tensor<(Batch, Hidden)>) -> Tensor<(Hidden,)> {
    x.across().max(Batch)
}

fn main() {}
