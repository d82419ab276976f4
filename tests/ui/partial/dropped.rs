//! An unused partial sum: the reduction is missing.

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
        h.contract(&self.weight);
        x.clone()
    }
}

fn main() {}
