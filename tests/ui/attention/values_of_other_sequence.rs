//! Cross attention to the values of the queries' sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

fn attend(
    core: &Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    q: Tensor<(Batch, Seq, Heads, HeadDim)>,
    k: Tensor<(Batch, Memory, KvHeads, HeadDim)>,
    v: Tensor<(Batch, Seq, KvHeads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(q, k, v))
}

fn main() {}
