//! Layers that cannot be recomputed by themselves, in a repeated field, and groups of what is no stack.

use meshwright::prelude::*;

dims! { Hidden, Ffn }

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
}

#[model]
struct Net {
    #[recompute]
    ups: Vec<Linear<Hidden, Ffn>>,
    #[recompute(every = 2)]
    mlps: [Mlp; 4],
}

fn main() {}
