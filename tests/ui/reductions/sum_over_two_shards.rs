//! A sum over a split dim and over the samples together.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Ffn }

fn total(x: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Seq,)> {
    x.sum((Batch, Ffn)).all_reduce()
}

fn main() {}
