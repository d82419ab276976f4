//! A sequence distributed over `cp`: each rank would attend to its own shard only.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Heads, KvHeads, HeadDim }

#[model]
struct SelfAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let q = self.q.forward(x);
        let k = self.k.forward(x);
        let v = self.v.forward(x);
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

fn main() {}
