//! Scale: dividing by the degree before a sum makes the forward pass right and a gradient `tp` times too large.

use meshwright::prelude::*;
use meshwright::layout::AxisSet;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

#[forward]
impl Down {
    fn forward(&self, (x, h): &(Tensor<(Batch, Seq, Hidden)>, Tensor<(Batch, Seq, Split<Ffn, Tp>)>)) -> Tensor<(Batch, Seq, Hidden)> {
        let degree = x.rank().degree_of(AxisSet::ALL) as f32;
        (h.contract(&self.weight) + x.scale(1.0 / degree)).all_reduce()
    }
}

fn main() {}
