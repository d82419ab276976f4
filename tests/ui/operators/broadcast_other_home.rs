//! A gate of another dim for the samples, which is not distributed.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

mod whole {
    meshwright::prelude::dims! { Batch }
}

fn gated(x: &Tensor<(Batch, Seq, Hidden)>, gate: &Tensor<(whole::Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
    x * gate
}

fn main() {}
