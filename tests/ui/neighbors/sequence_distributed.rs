//! A convolution along a whole sequence, applied to one that is distributed over cp.

use meshwright::prelude::*;

dims! { Batch @ data, Frames @ cp, Mel, Hidden }

#[model]
struct Encoder {
    conv: Conv1d<Mel, Hidden, 3, 2, 1>,
}

#[forward]
impl Encoder {
    fn forward(&self, x: &Tensor<(Batch, Frames, Mel)>) -> Tensor<(Batch, Frames, Hidden)> {
        self.conv.forward(x)
    }
}

fn main() {}
