//! Layout: layers not wrapped for context parallelism attend to their own shard only, and the loss still falls.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Heads, HeadDim }

#[model]
struct SelfAttention {
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (Heads, HeadDim)>,
    v: Linear<Hidden, (Heads, HeadDim)>,
    core: Attention<Heads, Heads, HeadDim>,
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

fn main() {}
