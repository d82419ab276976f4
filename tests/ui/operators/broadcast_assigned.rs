//! Assignments that would give a variable more dims.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn shifted(mut condition: Tensor<(Batch, Hidden)>, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Hidden)> {
    condition += x;
    condition
}

fn scaled(x: &Tensor<(Hidden,)>, by: Tensor<(Batch, Hidden)>) -> Tensor<(Hidden,)> {
    let mut x = x.clone();
    x *= by;
    x
}

fn main() {}
