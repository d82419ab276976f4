//! A split over two axes whose order is unknown.

use meshwright::layout::Axis;
use meshwright::prelude::*;

dims! { Batch, Experts }

fn zeros<A: Axis, B: Axis>(rank: &Rank) -> Tensor<(Batch, Split<Experts, (A, B)>)> {
    Tensor::from_fn(rank, &[2, 8], |_| 0.0)
}

fn main() {}
