//! Sinks of the key-value heads: each query head has one.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

type OnAll<H> = Tensor<(Batch, Seq, H, HeadDim)>;

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim>,
    sinks: &AttentionSinks<KvHeads>,
    (q, k, v): (OnAll<Heads>, OnAll<KvHeads>, OnAll<KvHeads>),
) -> OnAll<Heads> {
    core.forward(&(q, k, v, sinks))
}

fn main() {}
