//! A range of the global positions of a split sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Front, Hidden }

fn first(x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) {
    x.range(Seq, 0..4, Front);
}

fn main() {}
