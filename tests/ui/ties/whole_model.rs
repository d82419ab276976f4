//! A model is not a weight: the path continues to the layer.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Model {
    embed: Embed,
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

#[model]
struct Embed {
    tokens: Embedding<Vocab, Hidden>,
}

fn main() {}
