//! A learned bias in context-parallel attention, which does not take it.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Heads, HeadDim, Buckets }

type Operand = Tensor<(Batch, Seq, Heads, HeadDim)>;

#[model]
struct WithBias {
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
    bias: RelativeBias<Buckets, Heads>,
}

#[forward]
impl WithBias {
    fn forward(&self, x: &Operand) -> Operand {
        self.core.forward(&(x.clone(), x.clone(), x.clone(), &self.bias))
    }
}

fn main() {}
