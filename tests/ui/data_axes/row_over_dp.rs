//! A row-parallel layer over `dp`, by an alias.

use meshwright::nn::{Col, Row};
use meshwright::prelude::*;

dims! { Batch, Hidden, Ffn }

type Up = Linear<Hidden, Ffn, Col<Dp>>;
type Down = Linear<Ffn, Hidden, Row<Dp>>;

#[model]
struct Mlp {
    up: Up,
    down: Down,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

fn main() {}
