//! A helper generic in the shape, used with a shape that no tensor can have.

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
