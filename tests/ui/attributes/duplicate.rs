//! The same attribute twice.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    #[sharded(tp = "row")]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
