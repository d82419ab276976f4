//! A vocabulary-parallel head with a plain loss.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

#[model]
struct Model {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    head: Linear<Hidden, Vocab>,
    loss: CrossEntropy<Vocab>,
}

#[forward]
impl Model {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.norm.forward(x)
    }

    fn loss(&self, x: &Tensor<(Batch, Seq, Hidden)>, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.loss.forward(&self.head.forward(&self.forward(x)), targets)
    }
}

fn main() {}
