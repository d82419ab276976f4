//! A helper that adds a vector to a tensor of any two dims.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn shifted<B: Dim, D: Dim>(x: &Tensor<(B, D)>, by: &Tensor<(D,)>) -> Tensor<(B, D)> {
    x - by
}

fn main() {}
