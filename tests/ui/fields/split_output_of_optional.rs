//! An optional column-parallel layer whose output is not its input, and one that is missing the split.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Option<Linear<Hidden, Ffn>>,
    #[sharded(tp = "col")]
    bias: Option<Bias<Hidden>>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        let wide = self.up.forward(x);
        self.bias.forward(&wide)
    }
}

fn main() {}
