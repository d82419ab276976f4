//! The first field of the path is misspelt.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Model {
    embed: Embedding<Vocab, Hidden>,
    #[tied(embd)]
    head: LmHead<Hidden, Vocab>,
}

fn main() {}
