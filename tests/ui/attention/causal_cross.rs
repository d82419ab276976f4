//! Cross attention with the causal mask that attention has by default.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim>,
    q: Tensor<(Batch, Seq, Heads, HeadDim)>,
    kv: Tensor<(Batch, Memory, KvHeads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(q, kv.clone(), kv))
}

fn main() {}
