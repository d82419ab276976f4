//! A number on the left of a division that is not an `f32`, and a parameter there.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Inverse {
    gain: Param<(Hidden,)>,
}

#[forward]
impl Inverse {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        &self.gain / x
    }
}

fn inverse(x: &Tensor<(Batch, Hidden)>, scale: f64) -> Tensor<(Batch, Hidden)> {
    scale / x
}

fn main() {}
