//! Several dims are summed over one after the other.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn mean_over_split_dim(x: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch,)> {
    x.mean((Seq, Ffn))
}

fn sum_over_whole_dims(x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch,)> {
    x.sum((Seq, Hidden))
}

fn main() {}
