//! A depthwise convolution has no row-parallel form.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

#[model]
struct Mixing {
    #[sharded(tp = "row")]
    conv: CausalConv<Hidden, 4>,
}

#[forward]
impl Mixing {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.conv.forward(x)
    }
}

fn main() {}
