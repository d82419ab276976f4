//! The derive macro that the compiler suggests if `#[model]` is missing.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

#[derive(Model)]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        self.down.forward(&self.up.forward(x).silu())
    }
}

fn main() {}
