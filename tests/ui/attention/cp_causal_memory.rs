//! Context-parallel cross attention to a memory that each rank has all of, with a causal mask.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Memory, Heads, HeadDim }

#[model]
struct Cross {
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
}

impl Cross {
    fn attend(
        &self,
        q: Tensor<(Batch, Seq, Heads, HeadDim)>,
        kv: Tensor<(Batch, Memory, Heads, HeadDim)>,
    ) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
        self.core.forward(&(q, kv.clone(), kv))
    }
}

fn main() {}
