//! A causal convolution of an activation without a sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

#[model]
struct Mixing {
    conv: CausalConv<Hidden, 4>,
}

#[forward]
impl Mixing {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        self.conv.forward(x)
    }
}

fn main() {}
