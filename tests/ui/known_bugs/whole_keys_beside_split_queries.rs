//! Missing reduction: shared keys, whole on every rank, used by its own query heads only.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, Shared, HeadDim }

#[model]
struct LatentAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    shared_key: Linear<Hidden, (Shared, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Shared, HeadDim)>,
    core: Attention<Heads, Shared, HeadDim>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl LatentAttention {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let (q, k, v) = (self.q.forward(x), self.shared_key.forward(x), self.v.forward(x));
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

fn main() {}
