//! Layers generic in their axis, used with `dp`.

use meshwright::layout::Axis;
use meshwright::nn::{Col, Row};
use meshwright::prelude::*;

dims! { Batch, Hidden, Ffn }

#[model]
struct Mlp<A: Axis> {
    up: Linear<Hidden, Ffn, Col<A>>,
    down: Linear<Ffn, Hidden, Row<A>>,
}

#[model]
struct Block {
    mlp: Mlp<Dp>,
}

fn main() {}
