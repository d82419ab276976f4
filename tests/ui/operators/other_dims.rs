//! Two streams of the same number of dims, but of other ones.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn sum(x: &Tensor<(Batch, Seq, Hidden)>, y: &Tensor<(Batch, Seq, Ffn)>) -> Tensor<(Batch, Seq, Hidden)> {
    x + y
}

fn main() {}
