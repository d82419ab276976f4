//! Values with wider heads, in an attention that declares none.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim>,
    q: Tensor<(Batch, Seq, Heads, HeadDim)>,
    k: Tensor<(Batch, Seq, KvHeads, HeadDim)>,
    v: Tensor<(Batch, Seq, KvHeads, ValueDim)>,
) -> Tensor<(Batch, Seq, Heads, ValueDim)> {
    core.forward(&(q, k, v))
}

fn main() {}
