//! A norm of a partial sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
    norm: RmsNorm<Hidden>
}

#[forward]
impl Down {
    fn forward(&self, h: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.norm.forward(&h.contract(&self.weight))
    }
}

fn main() {}
