//! A misspelled axis.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(tpp = "col")]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
