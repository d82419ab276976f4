//! Means subtracted from the tensor they are computed from.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

struct Centered;

impl Layer<Tensor<(Batch, Seq, Hidden)>> for Centered {
    type Out = Tensor<(Batch, Seq, Hidden)>;

    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Self::Out {
        x - x.mean(Hidden)
    }
}

fn main() {}
