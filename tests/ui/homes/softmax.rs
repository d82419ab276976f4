//! A softmax over a split dim, of a tensor created outside the model.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp }

fn weights<S: Iterator<Item = Tensor<(Batch, Seq)>>>(scores: S) -> Vec<Tensor<(Batch, Seq)>> {
    scores.map(|scores| scores.softmax()).collect()
}

fn main() {}
