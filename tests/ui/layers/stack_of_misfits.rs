//! A stack of blocks whose output is split, but whose input is whole.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Block {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

#[model]
struct Tower {
    blocks: Stack<Block>,
}

#[forward]
impl Tower {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.blocks.forward(x)
    }
}

fn main() {}
