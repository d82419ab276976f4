//! A vocabulary that is declared over an axis, in all layers with a vocabulary.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Vocab @ fsdp, Hidden }

#[model]
struct Lm {
    embed: Embedding<Vocab, Hidden>,
    head: LmHead<Hidden, Vocab>,
    loss: CrossEntropy<Vocab>,
}

fn main() {}
