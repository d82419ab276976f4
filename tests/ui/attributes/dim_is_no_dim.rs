//! `scatter` with a type that is not a dim.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row", scatter = String)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Down {
    fn forward(&self, h: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.down.forward(h)
    }
}

fn main() {}
