//! A hand-written impl that matches a parameter to a tensor of other dims.

use meshwright::tensor::Trailing;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

impl Trailing<(Ffn,)> for (Batch, Hidden) {}

fn biased(x: &Tensor<(Batch, Hidden)>, bias: &Param<(Ffn,)>) -> Tensor<(Batch, Hidden)> {
    x + bias
}

fn main() {}
