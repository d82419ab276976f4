//! A misspelled attribute.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[shared(tp = "col")]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
