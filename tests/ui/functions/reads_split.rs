//! A function that reads along a dim, applied to a tensor that is split along it.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ data, Ffn }

struct Sort;

impl<B: Dim, F: Local> Function<((B, F),)> for Sort {
    type Output = Tensor<(B, F)>;
    type Saved = ();

    fn path(&self) -> &str {
        "sort"
    }

    fn forward_pass(&self, _: Forward<'_, ((B, F),), ()>) {}

    fn backward_pass(&self, _: Backward<'_, ((B, F),), (), ()>) {}
}

fn sort(x: &Tensor<(Batch, Split<Ffn, Tp>)>) -> Tensor<(Batch, Split<Ffn, Tp>)> {
    apply(Sort, (x,), ())
}

fn main() {}
