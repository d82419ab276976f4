//! A tensor subtracted from a parameter.

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
        x * &self.gain - (&self.bias - x)
    }
}

fn main() {}
