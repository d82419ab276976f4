//! Positions of a sequence distributed over `cp` do not begin at zero on every rank.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Heads, KvHeads, HeadDim }

#[model]
struct Queries {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    rope: Rope<HeadDim>,
}

#[forward]
impl Queries {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Split<Heads, Tp>, HeadDim)> {
        self.rope.forward(&self.q.forward(x))
    }
}

fn main() {}
