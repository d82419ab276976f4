//! Data parallelism is chosen at run time.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(dp = "col")]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
