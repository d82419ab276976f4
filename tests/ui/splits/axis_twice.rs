//! A split over one axis twice.

use meshwright::prelude::*;

dims! { Batch, Experts }

fn zeros(rank: &Rank) -> Tensor<(Batch, Split<Experts, (Tp, Tp)>)> {
    Tensor::from_fn(rank, &[2, 8], |_| 0.0)
}

fn main() {}
