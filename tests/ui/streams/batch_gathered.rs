//! A batch stays distributed.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

fn all(x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
    x.gather(Batch)
}

fn main() {}
