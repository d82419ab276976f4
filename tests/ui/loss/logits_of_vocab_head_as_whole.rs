//! The logits of a vocabulary-parallel head used as whole.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

#[model]
struct Model {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
    loss: CrossEntropy<Vocab>,
}

#[forward]
impl Model {
    fn forward(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        self.norm.forward(x)
    }

    fn loss(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.loss.forward(&self.head.logits(&self.forward(x)), targets)
    }
}

fn main() {}
