//! A parameter tied to an embedding the other way round.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Vocab, Hidden }

#[model]
struct Lm {
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    head: Param<(Hidden, Vocab)>,
}

fn main() {}
