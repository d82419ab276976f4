//! A sharded parameter, with an output that claims to be the same on every rank.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ data, Hidden, Ffn }

struct Mix;

type Params<H, F> = ((F, H),);

impl<B: Dim, H: Local, F: Dim> Function<((B, H),), Params<H, F>> for Mix {
    type Output = Tensor<(B, H)>;
    type Saved = ();

    fn path(&self) -> &str {
        "mix"
    }

    fn forward_pass(&self, _: Forward<'_, ((B, H),), Params<H, F>>) {}

    fn backward_pass(&self, _: Backward<'_, ((B, H),), Params<H, F>, ()>) {}
}

fn mix(
    x: &Tensor<(Batch, Hidden)>,
    weight: &Param<(Split<Ffn, Tp>, Hidden)>,
) -> Tensor<(Batch, Hidden)> {
    apply(Mix, (x,), (weight,))
}

fn main() {}
