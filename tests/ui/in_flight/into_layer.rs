//! A layer applied to a tensor in flight.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
    next: Linear<Hidden, Hidden>
}

#[forward]
impl Down {
    fn forward(&self, h: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch, Seq, Hidden)> {
        let y = h.contract(&self.weight).start_all_reduce();
        self.next.forward(&y)
    }
}

fn main() {}
