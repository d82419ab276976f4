//! Hand-written impls that allow causal attention between two sequences, and sinks of other heads.

use meshwright::nn::{MaskBetween, SameHeads};
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Heads, Others, HeadDim }

impl MaskBetween<Seq, Memory> for Causal {}

impl<Operand> SameHeads<Others, Operand> for Heads {}

fn attend(
    core: &Attention<Heads, Heads, HeadDim>,
    sinks: &AttentionSinks<Others>,
    q: Tensor<(Batch, Seq, Heads, HeadDim)>,
    kv: Tensor<(Batch, Memory, Heads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(q, kv.clone(), kv, sinks))
}

fn main() {}
