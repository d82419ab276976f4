//! Whole values with split queries and keys.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

type PerRank<H> = Tensor<(Batch, Seq, Split<H, Tp>, HeadDim)>;
type WholeValues = Tensor<(Batch, Seq, KvHeads, HeadDim)>;

struct Core {
    core: Attention<Heads, KvHeads, HeadDim>,
}

impl Core {
    fn forward(&self, q: PerRank<Heads>, k: PerRank<KvHeads>, v: WholeValues) -> PerRank<Heads> {
        self.core.forward(&(q, k, v))
    }
}

fn main() {}
