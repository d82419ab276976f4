//! The axes of a split; the last two are in the wrong order.

use meshwright::prelude::*;

dims! { Batch, Experts }

type Outputs = Tensor<(Batch, Split<Experts, (Ep, Tp, Cp)>)>;

fn zeros(rank: &Rank) -> Outputs {
    Tensor::from_fn(rank, &[2, 8], |_| 0.0)
}

fn main() {}
