//! Two dims that are distributed over one axis by declaration.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ dp, Hidden }

fn weights(rank: &Rank) -> Tensor<(Batch, Seq, Hidden)> {
    Tensor::from_block(rank, &[2, 4, 6], &[1.0; 48])
}

fn main() {}
