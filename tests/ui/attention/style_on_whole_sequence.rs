//! Context parallelism of a sequence that every rank has all of.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

#[model]
struct SelfAttention {
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, KvHeads, HeadDim>,
}

#[forward]
impl SelfAttention {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
        let q = self.q.forward(x);
        let k = self.k.forward(x);
        let v = self.v.forward(x);
        self.core.forward(&(q, k, v))
    }
}

fn main() {}
