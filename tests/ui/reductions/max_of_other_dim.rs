//! A maximum over a dim that the tensor does not have.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Len }

fn largest(x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch,)> {
    x.max(Len)
}

fn main() {}
