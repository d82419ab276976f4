//! A hand-written impl that makes two shapes the same.

use meshwright::layout::SameShape;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

impl SameShape<(Batch, Split<Hidden, Tp>)> for (Batch, Hidden) {}

fn sum(x: &Tensor<(Batch, Hidden)>, y: &Tensor<(Batch, Split<Hidden, Tp>)>) -> Tensor<(Batch, Hidden)> {
    x + y
}

fn main() {}
