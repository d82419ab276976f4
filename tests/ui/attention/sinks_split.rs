//! Sinks of split heads, and queries with whole heads.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

type OnAll<H> = Tensor<(Batch, Seq, H, HeadDim)>;

#[model]
struct Core {
    core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
}

impl Core {
    fn forward(&self, q: OnAll<Heads>, k: OnAll<KvHeads>, v: OnAll<KvHeads>) -> OnAll<Heads> {
        self.core.forward(&(q, k, v, &self.sinks))
    }
}

fn main() {}
