//! A convolution along a whole sequence, applied to a split one.

use meshwright::prelude::*;

dims! { Batch @ data, Frames, Mel, Hidden }

#[model]
struct Encoder {
    conv: Conv1d<Mel, Hidden, 3>,
}

#[forward]
impl Encoder {
    fn forward(&self, x: &Tensor<(Batch, Split<Frames, Tp>, Mel)>) -> Tensor<(Batch, Split<Frames, Tp>, Hidden)> {
        self.conv.forward(x)
    }
}

fn main() {}
