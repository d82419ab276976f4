//! Scale: a bias added to a partial sum in hand-written code, where a local contraction looked complete.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
    bias: Param<(Hidden,)>
}

#[forward]
impl Down {
    fn forward(&self, h: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch, Seq, Hidden)> {
        (h.contract(&self.weight) + &self.bias).all_reduce()
    }
}

fn main() {}
