//! Tensors of equally many dims, of which each has one that the other does not have, and of another order.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn outer(x: &Tensor<(Batch, Seq)>, y: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Seq)> {
    x * y
}

fn transposed(x: &Tensor<(Batch, Seq, Hidden)>, y: &Tensor<(Batch, Hidden, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
    x + y
}

fn main() {}
