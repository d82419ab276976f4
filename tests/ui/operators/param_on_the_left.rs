//! A gain on the left.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Affine {
    gain: Param<(Hidden,)>,
    bias: Param<(Hidden,)>,
}

#[forward]
impl Affine {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        &self.gain * x + &self.bias
    }
}

fn main() {}
