//! Dims of a layer are named whole; the attribute splits them.

use meshwright::prelude::*;

dims! { Hidden, Ffn }

#[model]
struct Mlp {
    up: Linear<Hidden, Split<Ffn, Tp>>,
}

fn main() {}
