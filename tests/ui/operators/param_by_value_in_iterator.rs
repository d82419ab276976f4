//! Biases that an iterator moves out of a list.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn biased(x: Tensor<(Batch, Hidden)>, biases: Vec<Param<(Hidden,)>>) -> Tensor<(Batch, Hidden)> {
    biases.into_iter().fold(x, |x, bias| x + bias)
}

fn main() {}
