//! Two dims that are split over sets with a common axis.

use meshwright::prelude::*;

dims! { Batch, Seq, Experts }

fn zeros(rank: &Rank) -> Tensor<(Split<Seq, (Cp, Tp)>, Split<Experts, (Ep, Tp)>)> {
    Tensor::from_fn(rank, &[8, 8], |_| 0.0)
}

fn main() {}
