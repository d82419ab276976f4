//! A sequence that is declared over `cp` and split over `tp` is gathered before its mean.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

fn pooled(x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Hidden)> {
    x.mean(Seq).all_reduce()
}

fn main() {}
