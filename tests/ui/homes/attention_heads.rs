//! Heads that are declared over an axis instead of split by the layers.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads @ dp, HeadDim }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct SelfAttention {
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (Heads, HeadDim)>,
    v: Linear<Hidden, (Heads, HeadDim)>,
    core: Attention<Heads, Heads, HeadDim>,
    out: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    fn forward(&self, x: &Stream) -> Stream {
        let qkv = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        self.out.forward(&self.core.forward(&qkv))
    }
}

fn main() {}
