//! A column-parallel layer over a data axis, in the style types.

use meshwright::nn::{Col, Row};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn, Col<Fsdp>>,
    down: Linear<Ffn, Hidden, Row<Fsdp>>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

fn main() {}
