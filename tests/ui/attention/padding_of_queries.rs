//! Cross attention with the padding of the queries.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    padding: Padding<(Batch, Seq)>,
    q: Tensor<(Batch, Seq, Heads, HeadDim)>,
    kv: Tensor<(Batch, Memory, KvHeads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(q, kv.clone(), kv, padding))
}

fn main() {}
