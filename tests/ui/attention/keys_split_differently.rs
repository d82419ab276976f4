//! The heads of keys and values are split, the heads of the queries are not.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

#[model]
struct SelfAttention {
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    core: Attention<Heads, KvHeads, HeadDim>,
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
