//! A divisor of 64 bits, and one that is an integer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

struct Temperature(f64);

impl Temperature {
    fn apply(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        x / self.0
    }
}

fn mean(x: &Tensor<(Batch, Hidden)>, n: usize) -> Tensor<(Batch, Hidden)> {
    x / n
}

fn main() {}
