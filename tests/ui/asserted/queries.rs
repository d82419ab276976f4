//! A hand-written impl that allows attention on a shard of the sequence.

use meshwright::nn::QueriesOf;
use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Heads, HeadDim }

impl QueriesOf<Heads, HeadDim> for (Batch, Seq, Heads, HeadDim) {
    type Shape = (Batch, Seq, Heads, HeadDim);
    type Keys<K: Whole> = (Batch, Seq, K, HeadDim);
}

fn attend(
    core: &Attention<Heads, Heads, HeadDim>,
    x: Tensor<(Batch, Seq, Heads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(x.clone(), x.clone(), x))
}

fn main() {}
