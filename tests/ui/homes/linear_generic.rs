//! An MLP generic in its inner dim, used with a dim that is declared over an axis.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn @ data }

type Stream = Tensor<(Batch, Hidden)>;

#[model]
struct Mlp<F: Whole> {
    up: Linear<Hidden, F>,
    down: Linear<F, Hidden>,
}

#[forward]
impl<F: Whole> Mlp<F> {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

#[model]
struct Tower {
    mlp: Mlp<Ffn>,
}

#[forward]
impl Tower {
    fn forward(&self, x: &Stream) -> Stream {
        self.mlp.forward(x)
    }
}

fn main() {}
