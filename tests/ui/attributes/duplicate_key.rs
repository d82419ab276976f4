//! The same axis twice.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(tp = "col", tp = "row")]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
