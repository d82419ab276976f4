//! Tensor-parallel splits differ from layer to layer: no dim is declared over `tp`.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn @ tp }

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        self.down.forward(&self.up.forward(x).silu())
    }
}

fn main() {}
