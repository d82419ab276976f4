//! A shift along a dim that the tensor does not have.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Memory }

fn shifted(x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
    x.shift(Memory, 1)
}

fn main() {}
