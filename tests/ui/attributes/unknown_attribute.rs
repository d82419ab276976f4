//! A misspelled attribute.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[shaded(tp = "col")]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
