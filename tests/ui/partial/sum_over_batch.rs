//! A sum over `Batch @ data` is a partial sum, as each data rank has its own samples.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Center {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Center {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Seq, Hidden)> {
        self.norm.forward(&x.sum(Batch))
    }
}

fn main() {}
