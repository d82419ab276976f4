//! A parameter over a dim in the middle of a shape, without `.tensor()`.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Heads, HeadDim }

#[model]
struct Scaled {
    scale: Param<(Heads,)>,
}

#[forward]
impl Scaled {
    fn forward(&self, x: &Tensor<(Batch, Seq, Heads, HeadDim)>) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
        x * &self.scale
    }
}

fn main() {}
