//! A gate of a dim that the stream does not have.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn gated(x: &Tensor<(Batch, Seq, Hidden)>, gate: &Tensor<(Batch, Ffn)>) -> Tensor<(Batch, Seq, Hidden)> {
    x * gate
}

fn main() {}
