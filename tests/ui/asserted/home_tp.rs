//! A dim declared over `tp` by hand.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

struct Ffn;

impl Whole for Ffn {
    const DECLARED_NAME: &'static str = "Ffn";
    type Home = Tp;
}

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
}

fn main() {}
