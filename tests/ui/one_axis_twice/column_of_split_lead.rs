//! A column-parallel layer on a stream whose leading dim is split over the same axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Up {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
}

#[forward]
impl Up {
    fn forward(
        &self,
        x: &Tensor<(Split<Batch, Tp>, Seq, Hidden)>,
    ) -> Tensor<(Split<Batch, Tp>, Seq, Split<Ffn, Tp>)> {
        self.up.forward(x)
    }
}

fn main() {}
