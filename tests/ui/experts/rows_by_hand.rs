//! ExpertTokens of experts that no routing has made.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Experts }

type ExpertTokens = Tensor<(Routed<(Batch,), Split<Experts, Ep>>, Hidden)>;

fn made(rank: &Rank) -> ExpertTokens {
    Tensor::from_fn(rank, &[8, 4], |_| 1.0)
}

fn relabeled(x: &Tensor<(Batch, Hidden)>) -> ExpertTokens {
    Tensor::from_block(x.rank(), &x.sizes(), &x.to_local_vec())
}

fn main() {}
