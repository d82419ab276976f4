//! A softmax over a dim of which each rank has a part, of a tensor that comes from outside.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp }

fn weights<S: Iterator<Item = Tensor<(Batch, Seq)>>>(scores: S) -> Vec<Tensor<(Batch, Seq)>> {
    scores.map(|scores| scores.softmax()).collect()
}

fn main() {}
