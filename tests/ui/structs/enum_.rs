//! A model is a struct.

use meshwright::prelude::*;

dims! { Hidden, Ffn }

#[model]
enum Mlp {
    Gated {
        #[sharded(tp = "col")]
        gate: Linear<Hidden, Ffn>,
    },
    Plain,
}

fn main() {}
