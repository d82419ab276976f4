//! Attention as a layer of any type, with keys that are gathered.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

type PerRank<H> = Tensor<(Batch, Seq, Split<H, Tp>, HeadDim)>;

fn run<L, Q, K, V>(layer: &L, q: Q, k: K, v: V) -> L::Out
where
    L: Layer<(Q, K, V)>,
{
    layer.forward(&(q, k, v))
}

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim>,
    q: PerRank<Heads>,
    k: PerRank<KvHeads>,
    v: PerRank<KvHeads>,
) -> PerRank<Heads> {
    run(core, q, k.gather(KvHeads), v)
}

fn main() {}
