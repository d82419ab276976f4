//! A tie to a recomputed model, which has no single weight.

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
struct Net {
    embed: Embedding<Vocab, Hidden>,
    #[recompute]
    #[tied(embed)]
    mlp: Mlp,
}

#[forward]
impl Net {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        self.mlp.forward(&self.embed.forward(tokens))
    }
}

fn main() {}
