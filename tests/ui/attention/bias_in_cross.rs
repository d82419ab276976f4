//! A bias by distance between positions of two sequences.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    bias: &RelativeBias<Buckets, Heads>,
    q: Tensor<(Batch, Seq, Heads, HeadDim)>,
    kv: Tensor<(Batch, Memory, KvHeads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(q, kv.clone(), kv, bias))
}

fn main() {}
