//! A vocabulary split over `ep`.

use meshwright::nn::VocabSplit;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Vocab, Hidden }

#[model]
struct Lm {
    embed: Embedding<Vocab, Hidden, VocabSplit<Ep>>,
    head: LmHead<Hidden, Vocab, VocabSplit<Ep>>,
    loss: CrossEntropy<Vocab, VocabSplit<Ep>>,
}

fn main() {}
