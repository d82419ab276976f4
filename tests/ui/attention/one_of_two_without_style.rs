//! One of two attentions has no style: it would attend to the rank's own part of the sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Heads, HeadDim }

type Operand = Tensor<(Batch, Seq, Heads, HeadDim)>;

#[model]
struct Pair {
    #[sharded(cp = "gather")]
    first: Attention<Heads, Heads, HeadDim>,
    second: Attention<Heads, Heads, HeadDim>,
}

#[forward]
impl Pair {
    fn forward(&self, x: &Operand) -> Operand {
        let y = self.first.forward(&(x.clone(), x.clone(), x.clone()));
        self.second.forward(&(y.clone(), y.clone(), y))
    }
}

fn main() {}
