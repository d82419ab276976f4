//! Experts of other ranks are left out of an output that claims to be of all.

use meshwright::layout::Stacked;
use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ dp, Experts, Hidden, Ffn }

struct PerExpert;

type Weight = Stacked<Split<Experts, Ep>, Hidden, Ffn>;

impl Function<((Batch, Hidden),), (Weight,)> for PerExpert {
    type Output = Tensor<(Batch, Ffn)>;
    type Saved = ();

    fn path(&self) -> &str {
        "per_expert"
    }

    fn forward_pass(&self, _: Forward<'_, ((Batch, Hidden),), (Weight,)>) {}

    fn backward_pass(&self, _: Backward<'_, ((Batch, Hidden),), (Weight,), ()>) {}
}

fn outputs(x: &Tensor<(Batch, Hidden)>, weight: &Param<Weight>) -> Tensor<(Batch, Ffn)> {
    apply(PerExpert, (x,), (weight,))
}

fn main() {}
