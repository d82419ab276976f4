//! Queries, and a pair of keys and values.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

fn attend<T>(core: &Attention<Heads, Heads, HeadDim>, q: Tensor<(Batch, Seq, Heads, HeadDim)>, kv: (T, T)) {
    let _ = core.forward(&(q, kv));
}

fn main() {}
