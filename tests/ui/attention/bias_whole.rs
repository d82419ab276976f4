//! A bias with the parameters of all heads, and queries with split heads.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

type PerRank<H> = Tensor<(Batch, Seq, Split<H, Tp>, HeadDim)>;

#[model]
struct Core {
    core: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    bias: RelativeBias<Buckets, Heads>,
}

impl Core {
    fn forward(&self, q: PerRank<Heads>, k: PerRank<KvHeads>, v: PerRank<KvHeads>) -> PerRank<Heads> {
        self.core.forward(&(q, k, v, &self.bias))
    }
}

fn main() {}
