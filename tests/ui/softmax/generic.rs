//! A softmax over any dim.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn weights<B: Dim, D: Dim>(x: &Tensor<(B, D)>) -> Tensor<(B, D)> {
    x.softmax()
}

fn main() {}
