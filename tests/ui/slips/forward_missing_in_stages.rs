//! Pipeline stages without `#[forward]`.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).silu())
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    first: Mlp,
    #[pipeline_stage]
    second: Mlp,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream;
}

fn main() {}
