//! An attribute of a later version.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[pipeline_stage]
    up: Linear<Hidden, Ffn>,
}

fn main() {}
