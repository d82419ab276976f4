//! Attention sinks in context-parallel attention, which does not take them.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Heads, HeadDim }

type Operand = Tensor<(Batch, Seq, Heads, HeadDim)>;

#[model]
struct WithSinks {
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
    sinks: AttentionSinks<Heads>,
}

#[forward]
impl WithSinks {
    fn forward(&self, x: &Operand) -> Operand {
        self.core.forward(&(x.clone(), x.clone(), x.clone(), &self.sinks))
    }
}

fn main() {}
