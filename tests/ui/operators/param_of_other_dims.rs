//! A gain over another dim than the last one.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

struct Scale {
    gain: Param<(Seq,)>,
}

impl Scale {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        x * &self.gain
    }
}

fn main() {}
