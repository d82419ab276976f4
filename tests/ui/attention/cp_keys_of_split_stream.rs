//! Queries of all positions of a rank of `cp`, and keys of those that its sequence-parallel stream leaves on the rank.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Heads, KvHeads, HeadDim }

#[model]
struct SelfAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(cp = "hybrid")]
    core: Attention<Heads, KvHeads, HeadDim>,
}

impl SelfAttention {
    fn attend(
        &self,
        x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>,
    ) -> Tensor<(Batch, Seq, Split<Heads, Tp>, HeadDim)> {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        self.core.forward(&(q, k, v.gather(Seq)))
    }
}

fn main() {}
