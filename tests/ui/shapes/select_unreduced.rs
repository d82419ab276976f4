//! The last position, which one rank has.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn last(x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Hidden)> {
    x.select(Seq, 7)
}

fn main() {}
