//! A maximum over positions, of which each rank of `cp` has a part.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

fn pooled(x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Hidden)> {
    x.max(Seq)
}

fn main() {}
