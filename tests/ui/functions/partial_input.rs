//! A function of a partial sum, which is not a value yet.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ data, Hidden }

struct Cube;

impl<B: Dim, H: Dim> Function<((B, H),)> for Cube {
    type Output = Tensor<(B, H)>;
    type Saved = ();

    fn path(&self) -> &str {
        "cube"
    }

    fn forward_pass(&self, _: Forward<'_, ((B, H),), ()>) {}

    fn backward_pass(&self, _: Backward<'_, ((B, H),), (), ()>) {}
}

fn cube(x: &Partial<(Batch, Hidden), Tp>) -> Tensor<(Batch, Hidden)> {
    apply(Cube, (x,), ())
}

fn main() {}
