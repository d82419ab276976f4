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

    fn forward(&self, _: Forward<'_, ((Batch, Hidden),), ()>) {}

    fn backward(&self, _: Backward<'_, ((Batch, Hidden),), (), ()>) {}
}

fn main() {}
