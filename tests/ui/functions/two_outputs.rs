//! A function with two outputs.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function};

dims! { Batch @ data, Hidden }

struct Halves;

impl Function<((Batch, Hidden),)> for Halves {
    type Output = (Tensor<(Batch, Hidden)>, Tensor<(Batch, Hidden)>);
    type Saved = ();

    fn path(&self) -> &str {
        "halves"
    }

    fn forward_pass(&self, _: Forward<'_, ((Batch, Hidden),), ()>) {}

    fn backward_pass(&self, _: Backward<'_, ((Batch, Hidden),), (), ()>) {}
}

fn main() {}
