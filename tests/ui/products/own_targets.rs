//! Own targets of scores whose columns are split, and of scores in another order.

use meshwright::prelude::*;

dims! { Batch @ data, Others }

fn split(scores: &Tensor<(Batch, Split<Others, Tp>)>) -> Targets<(Batch,)> {
    Targets::diagonal(scores)
}

fn swapped(scores: &Tensor<(Others, Batch)>) -> Targets<(Others,)> {
    Targets::diagonal(scores)
}

fn main() {}
