//! Plain projections leave a sequence-parallel stream split, and attention reads all of it.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

#[model]
struct SelfAttention {
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    core: Attention<Heads, KvHeads, HeadDim>,
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    fn forward(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        let q = self.q.forward(x);
        let k = self.k.forward(x);
        let v = self.v.forward(x);
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

fn main() {}
