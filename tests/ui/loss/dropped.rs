//! An unused loss.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Regression {
    readout: Linear<Hidden, Hidden>,
}

#[forward]
impl Regression {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let y = self.readout.forward(x);
        Loss::mean_of(&(&y * &y));
        y
    }
}

fn main() {}
