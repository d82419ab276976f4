//! Queries that are a partial sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

fn attend(
    core: &Attention<Heads, Heads, HeadDim>,
    q: Partial<(Batch, Seq, Heads, HeadDim), Tp>,
    kv: Tensor<(Batch, Seq, Heads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(q, kv.clone(), kv))
}

fn main() {}
