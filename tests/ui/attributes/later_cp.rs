//! An axis of a later version.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(cp = "ring")]
    core: Dropout,
}

fn main() {}
