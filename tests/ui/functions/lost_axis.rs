//! A mean over a split dim whose output claims to be the same on every rank.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ data, Ffn }

struct Mean;

impl<B: Dim, F: Dim> Function<((B, F),)> for Mean {
    type Output = Tensor<(B,)>;
    type Saved = ();

    fn path(&self) -> &str {
        "mean"
    }

    fn forward_pass(&self, _: Forward<'_, ((B, F),), ()>) {}

    fn backward_pass(&self, _: Backward<'_, ((B, F),), (), ()>) {}
}

fn mean(x: &Tensor<(Batch, Split<Ffn, Tp>)>) -> Tensor<(Batch,)> {
    apply(Mean, (x,), ())
}

fn main() {}
