//! The weight of a contraction is a parameter: neither another activation nor a layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Net {
    up: Linear<Hidden, Ffn>,
}

type Wide = Tensor<(Batch, Seq, Ffn)>;

fn by_tensor(x: &Tensor<(Batch, Seq, Hidden)>, y: &Tensor<(Hidden, Ffn)>) -> Wide {
    x.contract(y)
}

fn by_layer(x: &Tensor<(Batch, Seq, Hidden)>, net: &Net) -> Wide {
    x.contract(&net.up)
}

fn main() {}
