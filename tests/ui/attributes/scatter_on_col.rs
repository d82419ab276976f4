//! A column-parallel layer has no sum to scatter.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(tp = "col", scatter = Seq)]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
