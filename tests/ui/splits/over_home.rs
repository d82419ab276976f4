//! A dim declared over `cp`, split over a set with the same axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp }

fn zeros(rank: &Rank) -> Tensor<(Batch, Split<Seq, (Cp, Tp)>)> {
    Tensor::from_fn(rank, &[2, 8], |_| 0.0)
}

fn main() {}
