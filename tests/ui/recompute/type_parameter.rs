//! A generic model needs a bound on its type parameter to recompute it.

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
struct Residual<L> {
    #[recompute]
    inner: L,
}

#[forward]
impl<L: Layer<Stream, Out = Stream>> Residual<L> {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.inner.forward(x)
    }
}

fn main() {}
