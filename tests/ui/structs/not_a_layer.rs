//! A field that cannot be built.

use meshwright::prelude::*;

dims! { Hidden, Ffn }

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
    rate: f32,
}

fn main() {}
