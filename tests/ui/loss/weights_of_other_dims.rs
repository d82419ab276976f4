//! Weights of features for terms of tokens, and masks and weights with more dims than the terms.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn loss(terms: &Tensor<(Batch, Seq)>, weights: &Weights<(Batch, Hidden)>) -> Loss<(Batch, Seq)> {
    Loss::weighted_mean(terms, weights)
}

fn more(terms: &Tensor<(Batch,)>, weights: &Weights<(Batch, Hidden)>) -> Loss<(Batch,)> {
    Loss::weighted_mean(terms, weights)
}

fn mean(x: &Tensor<(Batch, Seq)>, mask: &Mask<(Batch, Seq, Hidden)>) -> Tensor<(Batch,)> {
    x.mean_where(Seq, mask)
}

fn main() {}
