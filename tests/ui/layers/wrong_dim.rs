//! Two fields swapped: the first layer reads `Ffn` and gets `Hidden`.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Ffn, Hidden>,
    #[sharded(tp = "row")]
    down: Linear<Hidden, Ffn>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

fn main() {}
