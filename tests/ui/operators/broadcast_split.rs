//! Means over the last dim of a split stream, subtracted from the stream after it is whole.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

struct Centered;

impl Layer<Tensor<(Batch, Split<Seq, Tp>, Hidden)>> for Centered {
    type Out = Tensor<(Batch, Seq, Hidden)>;

    fn forward(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Self::Out {
        x.gather(Seq) - x.mean(Hidden)
    }
}

fn main() {}
