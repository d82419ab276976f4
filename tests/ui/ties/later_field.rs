//! A tie points to an earlier field.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Model {
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
    embed: Embedding<Vocab, Hidden>,
}

fn main() {}
