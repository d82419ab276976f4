//! A dim that is declared over an axis, in layers with `#[sharded]`.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn @ fsdp }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

fn main() {}
