//! A parameter tied to the transpose of an embedding.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Vocab, Hidden }

#[model]
struct Lm {
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    head: Param<(Hidden, Vocab)>,
}

fn main() {}
