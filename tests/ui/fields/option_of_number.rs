//! An optional field that is no layer.

use meshwright::prelude::*;

dims! { Hidden, Ffn }

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
    rate: Option<f32>,
    rates: Vec<u64>,
}

fn main() {}
