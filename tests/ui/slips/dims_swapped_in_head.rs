//! Swapped dims of a head.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Net {
    norm: RmsNorm<Hidden>,
    head: LmHead<Vocab, Hidden>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(&self.norm.forward(x))
    }
}

fn main() {}
