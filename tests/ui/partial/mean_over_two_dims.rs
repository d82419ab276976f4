//! A mean over a whole and a split dim is a partial sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn mean_over_split_dim(x: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch,)> {
    x.mean((Seq, Ffn))
}

fn main() {}
