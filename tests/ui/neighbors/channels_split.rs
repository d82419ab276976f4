//! A causal convolution of whole channels, applied to split ones.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Mixing {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    conv: CausalConv<Ffn, 4>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mixing {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.down.forward(&self.conv.forward(&self.up.forward(x)))
    }
}

fn main() {}
