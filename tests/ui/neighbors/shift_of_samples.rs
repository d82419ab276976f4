//! A shift along the samples, which have no neighbors.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn shifted(x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
    x.shift(Batch, 1)
}

fn main() {}
