//! A layer over a type that is no dim.

use meshwright::prelude::*;

dims! { Hidden }

struct Ffn;

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
}

fn main() {}
