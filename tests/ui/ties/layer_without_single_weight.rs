//! A norm has no weight that a head could use.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Model {
    norm: LayerNorm<Hidden>,
    #[tied(norm)]
    head: LmHead<Hidden, Vocab>,
}

fn main() {}
