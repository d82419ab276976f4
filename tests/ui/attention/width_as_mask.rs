//! The width of values in the place of the mask.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

#[model]
struct Latent {
    core: Attention<Heads, KvHeads, HeadDim, ValueDim>,
}

fn main() {}
