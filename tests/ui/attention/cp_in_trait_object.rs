//! Attentions behind a trait object, one of them without a style.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Heads, HeadDim }

type Operand = Tensor<(Batch, Seq, Heads, HeadDim)>;
type Operands = (Operand, Operand, Operand);

#[model]
struct Pair {
    #[sharded(cp = "ring")]
    first: Attention<Heads, Heads, HeadDim>,
    second: Attention<Heads, Heads, HeadDim>,
}

fn attentions(pair: &Pair) -> [&dyn Layer<Operands, Out = Operand>; 2] {
    [&pair.first, &pair.second]
}

fn main() {}
