//! Tokens of a data rank, applied to its own experts only.

use meshwright::layout::Stacked;
use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ data, Experts, Hidden, Ffn }

struct PerExpert;

type Weight = Stacked<Split<Experts, Ep>, Hidden, Ffn>;

impl Function<((Batch, Hidden),), (Weight,)> for PerExpert {
    type Output = Tensor<(Batch, Split<Experts, Ep>, Ffn)>;
    type Saved = ();

    fn path(&self) -> &str {
        "per_expert"
    }

    fn forward_pass(&self, _: Forward<'_, ((Batch, Hidden),), (Weight,)>) {}

    fn backward_pass(&self, _: Backward<'_, ((Batch, Hidden),), (Weight,), ()>) {}
}

fn outputs(
    x: &Tensor<(Batch, Hidden)>,
    weight: &Param<Weight>,
) -> Tensor<(Batch, Split<Experts, Ep>, Ffn)> {
    apply(PerExpert, (x,), (weight,))
}

fn main() {}
