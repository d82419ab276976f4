//! A parameter tied to an embedding that is split.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Vocab, Hidden }

#[model]
struct Lm {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    head: Param<(Vocab, Hidden)>,
}

fn main() {}
