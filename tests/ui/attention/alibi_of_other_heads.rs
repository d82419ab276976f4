//! ALiBi over other heads than the queries'.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

type PerRank<H> = Tensor<(Batch, Seq, Split<H, Tp>, HeadDim)>;

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim>,
    alibi: &Alibi<KvHeads>,
    (q, k, v): (PerRank<Heads>, PerRank<KvHeads>, PerRank<KvHeads>),
) -> PerRank<Heads> {
    core.forward(&(q, k, v, alibi))
}

fn main() {}
