//! A softmax over a pair of dims; the last one is distributed.

use meshwright::prelude::*;

dims! { Batch @ data, Heads, Seq @ cp }

struct Scores {
    scores: Tensor<(Batch, Heads, Seq, Seq)>,
}

impl Scores {
    fn weights(&self) -> Tensor<(Batch, Heads, Seq, Seq)> {
        self.scores.softmax()
    }
}

fn main() {}
