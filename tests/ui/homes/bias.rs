//! A bias over a dim that is declared over an axis, whole and split.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden @ ep, Ffn @ dp }

#[model]
struct Biased {
    plain: Bias<Hidden>,
    #[sharded(tp = "col")]
    split: Bias<Ffn>,
}

fn main() {}
