//! Numbers as the input of a layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn normed(norm: &RmsNorm<Hidden>, block: &Vec<f32>) -> Tensor<(Batch, Hidden)> {
    norm.forward(block)
}

fn main() {}
