//! Five mistakes in one model: five errors without follow-up errors.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Model {
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "colum")]
    gate: Linear<Hidden, Ffn>,
    #[sharded(tpp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col", scatter = Seq)]
    other: Linear<Hidden, Ffn>,
    #[shaded(tp = "row")]
    down: Linear<Ffn, Hidden>,
    #[tied(embd)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Model {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
    }
}

fn main() {}
