//! A loss as the terms of an auxiliary loss.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn with_squares(x: Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
    let squares = Loss::mean_of(&x.square());
    x.with_auxiliary_loss(&squares)
}

fn main() {}
