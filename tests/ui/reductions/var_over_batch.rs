//! A variance over the samples of one rank.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

fn spread(x: &Tensor<(Batch, Hidden)>) -> Tensor<(Hidden,)> {
    x.var(Batch)
}

fn main() {}
