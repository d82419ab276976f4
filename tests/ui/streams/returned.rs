//! `scatter = Seq` was forgotten: the result is whole, and the stream is not.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Plain = Tensor<(Batch, Seq, Hidden)>;
type Sequence = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Sequence) -> Sequence {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

fn main() {}
