//! A tensor with two dims split over one axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Ffn }

fn mask(rank: &Rank) -> Tensor<(Batch, Split<Seq, Tp>, Split<Ffn, Tp>)> {
    Tensor::from_fn(rank, &[2, 4, 6], |at| at[2] as f32)
}

fn main() {}
