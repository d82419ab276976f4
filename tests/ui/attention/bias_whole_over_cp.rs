//! A bias with the parameters of all heads, and queries with split heads, over a distributed sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Heads, HeadDim, Buckets }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct WithBias {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
    bias: RelativeBias<Buckets, Heads>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl WithBias {
    fn forward(&self, x: &Stream) -> Stream {
        let q = self.q.forward(x);
        self.o.forward(&self.core.forward(&(q.clone(), q.clone(), q, &self.bias)))
    }
}

fn main() {}
