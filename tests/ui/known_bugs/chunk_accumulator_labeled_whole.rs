//! Missing reduction: an accumulator of partial sums, chunk by chunk, declared complete.

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
        let mut total: Tensor<(Batch, Seq, Hidden)> = x.scale(0.0);
        for _chunk in 0..2 {
            total = &total + h.contract(&self.weight);
        }
        total
    }
}

fn main() {}
