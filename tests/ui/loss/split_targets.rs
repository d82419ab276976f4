//! The targets of a vocabulary-parallel head belong to the whole sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Model {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Model {
    fn forward(&self, x: &Stream) -> Stream {
        self.norm.forward(x)
    }

    fn loss(&self, x: &Stream, targets: &Targets<(Batch, Split<Seq, Tp>)>) -> Loss<(Batch, Seq)> {
        self.head.loss(&self.forward(x), targets)
    }
}

fn main() {}
