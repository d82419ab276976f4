//! A model without `#[forward]` in a function of any layer.

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

fn run<L: Layer<Stream>>(l: &L, x: &Stream) -> L::Out { l.forward(x) }

fn call(mlp: &Mlp, x: &Stream) -> Stream { run(mlp, x) }

fn main() {}
