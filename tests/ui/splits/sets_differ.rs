//! Tensors that are split over different sets of axes, added.

use meshwright::prelude::*;

dims! { Batch, Experts }

fn sum(
    x: &Tensor<(Batch, Split<Experts, (Ep, Tp)>)>,
    y: &Tensor<(Batch, Split<Experts, Ep>)>,
) -> Tensor<(Batch, Split<Experts, (Ep, Tp)>)> {
    x + y
}

fn main() {}
