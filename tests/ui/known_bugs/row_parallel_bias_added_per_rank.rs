//! Scale: the bias of a row-parallel layer added on every rank before the all-reduce counts `tp` times.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
    bias: Bias<Hidden>
}

#[forward]
impl Down {
    fn forward(&self, h: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.bias.forward(&h.contract(&self.weight))
    }
}

fn main() {}
