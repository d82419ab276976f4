//! Tensors of a whole gate: an iterator multiplies the experts of a split sequence by them.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Gate = Tensor<(Batch, Seq)>;

fn gated(experts: Vec<Tensor<(Batch, Split<Seq, Tp>, Hidden)>>, gates: &[Gate]) -> usize {
    experts.into_iter().zip(gates).map(|(expert, gate)| gate * expert).count()
}

fn main() {}
