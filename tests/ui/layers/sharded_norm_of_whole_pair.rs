//! A norm over split heads would add the squares of whole rows once for each rank.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, HeadDim }

#[model]
struct Queries {
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    q_norm: RmsNorm<(Heads, HeadDim)>,
}

#[forward]
impl Queries {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
        self.q_norm.forward(&self.q.forward(x))
    }
}

fn main() {}
