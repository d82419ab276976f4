//! Sinks have one sharded form.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

#[model]
struct Core {
    core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row")]
    sinks: AttentionSinks<Heads>,
}

fn main() {}
