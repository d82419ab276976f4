//! Tensors of a gate, by which an iterator multiplies the experts.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Gate = Tensor<(Batch, Seq)>;

fn gated(experts: Vec<Tensor<(Batch, Seq, Hidden)>>, gates: &[Gate]) -> usize {
    experts.into_iter().zip(gates).map(|(expert, gate)| gate * expert).count()
}

fn main() {}
