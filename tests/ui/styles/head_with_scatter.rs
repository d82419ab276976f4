//! A head has nothing to scatter: its loss is already a sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

#[model]
struct Model {
    #[sharded(tp = "vocab", scatter = Seq)]
    head: LmHead<Hidden, Vocab>,
}

impl Model {
    fn loss(&self, x: &Tensor<(Batch, Seq, Hidden)>, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }
}

fn main() {}
