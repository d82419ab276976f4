//! Layers of another output type in repeated fields, which are applied in order.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

type Stream = Tensor<(Batch, Hidden)>;

#[model]
struct Net {
    #[sharded(tp = "col")]
    ups: Vec<Linear<Hidden, Ffn>>,
    norms: [RmsNorm<Ffn>; 2],
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        let _ = self.ups.forward(x);
        self.norms.forward(x)
    }
}

fn main() {}
