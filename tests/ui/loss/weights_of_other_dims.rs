//! Weights of samples for terms of tokens.

use meshwright::prelude::*;
use meshwright::tensor::Weights;

dims! { Batch @ data, Seq, Hidden }

fn loss(terms: &Tensor<(Batch, Seq)>, weights: &Weights<(Batch,)>) -> Loss<(Batch, Seq)> {
    Loss::weighted_mean(terms, weights)
}

fn main() {}
