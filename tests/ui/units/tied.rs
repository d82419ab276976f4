//! The weight of a tied field is in the unit of the field that it is tied to.

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
    #[sharded(fsdp)]
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Net {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        self.embed.forward(tokens)
    }
}

fn main() {}
