//! The keys of all heads, for the queries of some.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Keys, Heads, HeadDim }

fn scores(q: &Tensor<(Batch, Seq, Split<Heads, Tp>, HeadDim)>, k: &Tensor<(Batch, Keys, Heads, HeadDim)>) {
    q.dot(k, HeadDim, (Batch, Heads));
}

fn main() {}
