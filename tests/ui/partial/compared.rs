//! Comparisons with partial sums, of them, and with parameters.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

#[model]
struct Floor {
    floor: Param<(Hidden,)>,
}

impl Floor {
    fn limited(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        x.maximum(&self.floor)
    }
}

fn above(x: &Tensor<(Batch, Hidden)>, sum: &Partial<(Batch, Hidden), Tp>) -> Tensor<(Batch, Hidden)> {
    x.maximum(sum)
}

fn powers(sum: &Partial<(Batch, Hidden), Tp>) -> Tensor<(Batch, Hidden)> {
    sum.pow(2.0)
}

fn positive(sum: &Partial<(Batch, Hidden), Tp>) -> Tensor<(Batch, Hidden)> {
    sum.maximum(0.0)
}

fn main() {}
