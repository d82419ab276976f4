//! The targets of a vocabulary-parallel head are those of the whole sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

#[model]
struct Model {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Model {
    fn forward(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        self.norm.forward(x)
    }

    fn loss(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>, targets: &Targets<(Batch, Split<Seq, Tp>)>) -> Loss<(Batch, Seq)> {
        self.head.loss(&self.forward(x), targets)
    }
}

fn main() {}
