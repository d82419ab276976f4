//! A linear layer stores its weight transposed.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Model {
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    head: Linear<Hidden, Vocab>,
}

fn main() {}
