//! Scale: dividing by the degree before a sum makes the forward pass right and a gradient `tp` times too large.

use meshwright::prelude::*;
use meshwright::layout::AxisSet;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

#[forward]
impl Down {
    fn forward(&self, (x, h): &(Stream, Tensor<(Batch, Seq, Split<Ffn, Tp>)>)) -> Stream {
        let degree = x.rank().degree_of(AxisSet::ALL) as f32;
        (h.contract(&self.weight) + x.scale(1.0 / degree)).all_reduce()
    }
}

fn main() {}
