//! A vocabulary that is declared over an axis, and split over another one.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Vocab @ dp, Hidden }

#[model]
struct Lm {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
    #[sharded(tp = "vocab")]
    loss: CrossEntropy<Vocab>,
}

fn main() {}
