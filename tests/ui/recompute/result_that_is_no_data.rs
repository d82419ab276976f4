//! The output of a segment must be `SegmentData`.

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
    fn forward(&self, x: &Stream) -> (Stream, usize) {
        (self.mlp.forward(x), 1)
    }
}

#[model]
struct Net {
    #[recompute]
    counted: Counted,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        self.counted.forward(x).0
    }
}

fn main() {}
