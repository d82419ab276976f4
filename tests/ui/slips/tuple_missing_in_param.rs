//! Dims of a parameter without a tuple.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Scale {
    weight: Param<Hidden, Ffn>,
}

fn main() {}
