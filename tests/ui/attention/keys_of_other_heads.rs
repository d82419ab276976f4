//! Keys with the heads of the queries, in an attention with other key-value heads.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim>,
    q: Tensor<(Batch, Seq, Heads, HeadDim)>,
    v: Tensor<(Batch, Seq, KvHeads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(q.clone(), q, v))
}

fn main() {}
