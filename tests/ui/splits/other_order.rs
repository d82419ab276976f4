//! The axes of a split, from the innermost to the outermost.

use meshwright::prelude::*;

dims! { Batch, Experts }

fn zeros(rank: &Rank) -> Tensor<(Batch, Split<Experts, (Tp, Ep)>)> {
    Tensor::from_fn(rank, &[2, 8], |_| 0.0)
}

fn main() {}
