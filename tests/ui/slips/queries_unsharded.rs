//! Queries without the sharding of keys and values, from a sequence-parallel stream.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, HeadDim }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct SelfAttention {
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    rope: Rope<HeadDim>,
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
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
