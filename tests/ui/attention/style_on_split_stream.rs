//! Plain projections leave a sequence-parallel stream split: a rank of `tp` has a part of the part of its rank of `cp`.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Heads, KvHeads, HeadDim }

#[model]
struct SelfAttention {
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(cp = "ulysses")]
    core: Attention<Heads, KvHeads, HeadDim>,
}

#[forward]
impl SelfAttention {
    fn forward(
        &self,
        x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>,
    ) -> Tensor<(Batch, Split<Seq, Tp>, Heads, HeadDim)> {
        let q = self.q.forward(x);
        let k = self.k.forward(x);
        let v = self.v.forward(x);
        self.core.forward(&(q, k, v))
    }
}

fn main() {}
