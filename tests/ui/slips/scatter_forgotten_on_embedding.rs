//! An embedding without `scatter` before a stack with a sequence-parallel stream.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).silu())
    }
}

#[model]
struct Net {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    blocks: Stack<Mlp>,
}

#[forward]
impl Net {
    fn forward(&self, ids: &Tokens<(Batch, Seq)>) -> Stream {
        self.blocks.forward(&self.embed.forward(ids))
    }
}

fn main() {}
