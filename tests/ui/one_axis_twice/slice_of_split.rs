//! A second dim sliced over the axis of the first.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Ffn }

fn own(x: Vec<Tensor<(Batch, Seq, Split<Ffn, Tp>)>>) {
    let slice = |x: Tensor<(Batch, Seq, Split<Ffn, Tp>)>| x.slice(Seq, Tp);
    x.into_iter().map(slice).for_each(drop);
}

fn main() {}
