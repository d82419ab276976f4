//! A sum over a split dim, with another dim that varies over the same axis: not a partial sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Ffn }

fn total(rank: &Rank) -> Tensor<(Batch, Split<Seq, Tp>)> {
    let x: Tensor<(Batch, Split<Seq, Tp>, Split<Ffn, Tp>)> = Tensor::from_fn(rank, &[2, 4, 6], |_| 1.0);
    x.sum(Ffn).all_reduce()
}

fn main() {}
