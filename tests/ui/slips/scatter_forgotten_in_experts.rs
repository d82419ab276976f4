//! A shared expert without `scatter`, added to a sequence-parallel stream in place.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Experts, Copies }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Moe {
    router: Router<Hidden, Experts, Copies>,
    shared: Shared,
}

#[model]
struct Shared {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Shared {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Seq, Hidden)> {
        self.down.forward(&self.up.forward(x).silu())
    }
}

#[forward]
impl Moe {
    fn forward(&self, x: &Stream) -> Stream {
        let mut y = x.clone();
        y += self.shared.forward(x);
        y
    }
}

fn main() {}
