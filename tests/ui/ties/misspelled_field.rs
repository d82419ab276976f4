//! The first field of the path is misspelled.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Model {
    embed: Embedding<Vocab, Hidden>,
    #[tied(embd)]
    head: LmHead<Hidden, Vocab>,
}

fn main() {}
