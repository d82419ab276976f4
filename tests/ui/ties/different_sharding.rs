//! One weight is split, the other is not.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Model {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

fn main() {}
