//! An axis of a later version.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(ep = "experts")]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
