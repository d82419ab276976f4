//! An auxiliary loss on a partial sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

#[forward]
impl Down {
    fn forward(&self, h: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch, Seq, Hidden)> {
        let terms = h.square();
        h.contract(&self.weight).with_auxiliary_loss(&terms)
    }
}

fn main() {}
