//! The variants of an enum hold layers, not fields.

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
