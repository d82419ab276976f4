//! A split over the data axes by their common name, which would be a second type of the split over the three.

use meshwright::prelude::*;

dims! { Batch, Experts }

fn zeros(rank: &Rank) -> Tensor<(Batch, Split<Experts, Data>)> {
    Tensor::from_fn(rank, &[2, 8], |_| 0.0)
}

fn main() {}
