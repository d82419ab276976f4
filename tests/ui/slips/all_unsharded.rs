//! Queries, keys and values without sharding, from a sequence-parallel stream.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, KvHeads, HeadDim }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct SelfAttention {
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    rope: Rope<HeadDim>,
    core: Attention<Heads, KvHeads, HeadDim>,
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
