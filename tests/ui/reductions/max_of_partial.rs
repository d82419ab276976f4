//! The maximum of a partial sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn largest(x: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch,)> {
    x.sum(Ffn).max(Seq)
}

fn main() {}
