//! A parameter into a head.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

fn logits(head: &LmHead<Hidden, Vocab>, x: &Param<(Seq, Hidden)>) -> Tensor<(Seq, Vocab)> {
    head.logits(x)
}

fn main() {}
