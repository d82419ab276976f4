//! A residual added to a partial sum is counted once per rank.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

#[forward]
impl Down {
    fn forward(&self, (x, h): &(Tensor<(Batch, Seq, Hidden)>, Tensor<(Batch, Seq, Split<Ffn, Tp>)>)) -> Tensor<(Batch, Seq, Hidden)> {
        (x + h.contract(&self.weight)).all_reduce()
    }
}

fn main() {}
