//! A softmax over the samples, in a closure.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn weights(scores: &[Tensor<(Hidden, Batch)>]) -> Vec<Tensor<(Hidden, Batch)>> {
    let softmax = |x: &Tensor<(Hidden, Batch)>| x.softmax();
    scores.iter().map(softmax).collect()
}

fn main() {}
