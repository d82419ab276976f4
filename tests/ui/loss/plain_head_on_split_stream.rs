//! A head without vocabulary sharding over a sequence-parallel stream.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

#[model]
struct Model {
    norm: RmsNorm<Hidden>,
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Model {
    fn forward(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        self.norm.forward(x)
    }

    fn loss(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(&self.forward(x), targets)
    }
}

fn main() {}
