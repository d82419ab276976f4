//! A helper for any shape, asked for one that is no tensor's.

use meshwright::layout::Shape;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Ffn }

fn ones<S: Shape>(rank: &Rank, sizes: &[usize]) -> Tensor<S> {
    Tensor::from_fn(rank, sizes, |_| 1.0)
}

fn mask(rank: &Rank) -> Tensor<(Split<Seq, Tp>, Split<Ffn, Tp>)> {
    ones(rank, &[4, 6])
}

fn main() {}
