//! A residual added to a tensor in flight on the left.

use meshwright::prelude::*;

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
        let y = h.contract(&self.weight).start_all_reduce();
        y + x
    }
}

fn main() {}
