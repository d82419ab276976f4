//! Wrong label: one rank's partial sum typed as the sum.

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
        let partial = h.contract(&self.weight);
        Tensor::from_block(h.rank(), &h.sizes(), &partial.to_vec())
    }
}

fn main() {}
