//! Recomputed layers must own their data.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

#[model]
struct Many<L> {
    layers: Stack<L>,
}

#[forward]
impl<L: Layer<Stream, Out = Stream>> Many<L> {
    fn forward(&self, x: &Stream) -> Stream {
        self.layers.forward(x)
    }
}

fn main() {}
