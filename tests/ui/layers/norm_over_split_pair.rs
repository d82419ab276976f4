//! A norm over heads that are split would take the mean of a shard of each row.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, HeadDim }

#[model]
struct Queries {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    q_norm: RmsNorm<(Heads, HeadDim)>,
}

#[forward]
impl Queries {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Split<Heads, Tp>, HeadDim)> {
        self.q_norm.forward(&self.q.forward(x))
    }
}

fn main() {}
