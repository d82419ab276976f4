//! Documents of tokens with another sequence than the distributed one.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Memory, Heads, HeadDim }

type Operand = Tensor<(Batch, Seq, Heads, HeadDim)>;

#[model]
struct Packed {
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
}

impl Packed {
    fn attend(&self, x: Operand, documents: &Documents<(Batch, Memory)>) -> Operand {
        self.core.forward(&(x.clone(), x.clone(), x, documents))
    }
}

fn main() {}
