//! Missing reduction: a replicated router applied to a shard of each token.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Experts }

#[model]
struct Router {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    gate: Linear<Ffn, Experts>,
}

#[forward]
impl Router {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Experts)> {
        self.gate.forward(&self.up.forward(x))
    }
}

fn main() {}
