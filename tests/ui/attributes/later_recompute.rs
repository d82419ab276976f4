//! A word of a later version.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[recompute(every = 2)]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
