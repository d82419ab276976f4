//! Cross attention to a memory whose sequence is split: each rank would read its own part only.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    q: Tensor<(Batch, Seq, Heads, HeadDim)>,
    kv: Tensor<(Batch, Split<Memory, Tp>, KvHeads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(q, kv.clone(), kv))
}

fn main() {}
