//! A misspelled style.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(tp = "colum")]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
