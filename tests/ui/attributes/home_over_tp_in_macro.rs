//! A home from a user's macro, in a generic model.

use meshwright::prelude::*;

macro_rules! declare {
    ($dim:ident @ $axis:ident) => {
        dims! { Batch @ data, Hidden, $dim @ $axis }
    };
}

declare! { Experts @ tp }

#[model]
struct Gate<E: Local> {
    gate: Linear<Hidden, E>,
}

type Router = Gate<Experts>;

fn scores(router: &Router, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Experts)> {
    router.gate.forward(x).softmax()
}

fn main() {}
