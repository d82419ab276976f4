//! A style on a layer that has no parameters, and computes what its rank needs anyway.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Heads }

#[model]
struct Slopes {
    #[sharded(tp = "col")]
    alibi: Alibi<Heads>,
}

fn main() {}
