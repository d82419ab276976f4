//! A tensor in flight that is dropped without a wait.

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
        h.contract(&self.weight).start_all_reduce();
        x.clone()
    }
}

fn main() {}
