//! The kinds of layers of a stack take and return different types.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;
type Sharded = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Dense {
    up: Linear<Hidden, Hidden>,
}

#[forward]
impl Dense {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.up.forward(x)
    }
}

#[model]
struct Scattered {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Scattered {
    fn forward(&self, x: &Sharded) -> Sharded {
        self.norm.forward(x)
    }
}

#[model]
enum Block {
    Dense(Dense),
    Scattered(Scattered),
}

fn main() {}
