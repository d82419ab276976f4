//! A dim split over one of the axes of its home.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

type Sharded = Tensor<(Split<Batch, Dp>, Hidden)>;

fn input(rank: &Rank, block: &[f32]) -> Sharded {
    Tensor::from_block(rank, &[8, 4], block)
}

fn main() {}
