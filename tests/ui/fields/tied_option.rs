//! A tie to an optional field, and one of an optional field.

use meshwright::prelude::*;

dims! { Hidden, Vocab }

#[model]
struct Net {
    first: Option<Embedding<Vocab, Hidden>>,
    #[tied(first)]
    head: LmHead<Hidden, Vocab>,
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    other: Option<LmHead<Hidden, Vocab>>,
}

fn main() {}
