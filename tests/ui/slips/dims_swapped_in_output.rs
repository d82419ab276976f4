//! Swapped dims of the output projection of attention.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct SelfAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    rope: Rope<HeadDim>,
    core: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<Hidden, (Heads, HeadDim)>,
}

#[forward]
impl SelfAttention {
    fn forward(&self, x: &Stream) -> Stream {
        let q = self.rope.forward(&self.q.forward(x));
        let k = self.rope.forward(&self.k.forward(x));
        let v = self.v.forward(x);
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

fn main() {}
