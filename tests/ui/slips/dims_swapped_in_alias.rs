//! Swapped dims of an alias of a layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

type Up = Linear<Ffn, Hidden>;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Up,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).silu())
    }
}

fn main() {}
