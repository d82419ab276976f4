//! Queries that the projection has written as one dim.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

fn attend(core: &Attention<Heads, Heads, HeadDim>, q: Linear<Hidden, Hidden>, x: &Tensor<(Batch, Seq, Hidden)>) {
    let project = |x| q.forward(x);
    let _ = core.forward(&(project(x), project(x), project(x)));
}

fn main() {}
