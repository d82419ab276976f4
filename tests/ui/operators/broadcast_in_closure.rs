//! Tensors of a gate: an iterator multiplies the experts by them.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Gate = Tensor<(Batch, Seq)>;

fn gated(experts: Vec<Tensor<(Batch, Seq, Hidden)>>, gates: &[Gate]) -> usize {
    experts.into_iter().zip(gates).map(|(expert, gate)| gate * expert).count()
}

fn main() {}
