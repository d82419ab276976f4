//! The input of a stack must be `SegmentData`.

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
struct Counted {
    mlp: Mlp,
}

#[forward]
impl Counted {
    fn forward(&self, (x, n): &(Stream, usize)) -> (Stream, usize) {
        (self.mlp.forward(x), n + 1)
    }
}

#[model]
struct Net {
    blocks: Stack<Counted>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(&(x.clone(), 0)).0
    }
}

fn main() {}
