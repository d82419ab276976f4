//! The two weights have different dims.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Model {
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    head: LmHead<Ffn, Vocab>,
}

fn main() {}
