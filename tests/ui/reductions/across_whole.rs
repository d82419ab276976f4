//! Ranks that read together along a dim that each of them holds whole.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn largest(x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Split<Seq, Tp>)> {
    x.across().max(Hidden)
}

fn main() {}
