//! One dim split twice over the same axis.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

fn input(rank: &Rank, block: &[f32]) -> Tensor<(Batch, Split<Split<Hidden, Tp>, Tp>)> {
    Tensor::from_block(rank, &[8, 4], block)
}

fn main() {}
