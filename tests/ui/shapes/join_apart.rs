//! Two dims that are joined over a third one.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Heads, HeadDim, Hidden }

fn merge(x: &Tensor<(Batch, Heads, Seq, HeadDim)>) {
    x.join((Heads, HeadDim), Hidden);
}

fn main() {}
