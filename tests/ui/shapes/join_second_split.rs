//! A joined dim that would be split between the elements of the first.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Heads, HeadDim, Hidden }

fn merge(x: &Tensor<(Batch, Seq, Heads, Split<HeadDim, Tp>)>) {
    x.join((Heads, HeadDim), Hidden);
}

fn main() {}
