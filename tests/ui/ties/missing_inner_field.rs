//! A field further down the path does not exist.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Model {
    embed: Embed,
    #[tied(embed.token)]
    head: LmHead<Hidden, Vocab>,
}

#[model]
struct Embed {
    tokens: Embedding<Vocab, Hidden>,
}

fn main() {}
