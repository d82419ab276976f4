//! An unused partial sum: the reduction is missing.

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
        h.contract(&self.weight);
        x.clone()
    }
}

fn main() {}
