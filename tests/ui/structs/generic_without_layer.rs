//! A generic model whose type parameter lacks a layer bound.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

#[model]
struct Residual<L> {
    inner: L,
}

#[forward]
impl<L> Residual<L> {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        x + self.inner.forward(x)
    }
}

fn main() {}
