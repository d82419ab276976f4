//! An affine layer of three dims: two of them are a pair.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, HeadDim }

#[model]
struct Queries {
    q: Affine<Hidden, Heads, HeadDim>,
}

#[forward]
impl Queries {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
        self.q.forward(x)
    }
}

fn main() {}
