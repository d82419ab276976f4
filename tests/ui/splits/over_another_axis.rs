//! A column-parallel layer on a stream that is split over another axis by its type.

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
        x: &Tensor<(Batch, Split<Seq, Cp>, Hidden)>,
    ) -> Tensor<(Batch, Split<Seq, Cp>, Split<Ffn, Tp>)> {
        self.up.forward(x)
    }
}

fn main() {}
