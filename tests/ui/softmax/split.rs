//! A softmax over a split dim.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn weights(x: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
    x.softmax()
}

fn main() {}
