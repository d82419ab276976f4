//! An MLP over a dim that is declared over an axis.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn @ dp }

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

fn main() {}
