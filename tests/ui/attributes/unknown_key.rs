//! A misspelled key.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(tp = "row", scater = Seq)]
    down: Linear<Ffn, Hidden>,
}

fn main() {}
