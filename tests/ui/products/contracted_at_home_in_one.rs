//! A sum over positions, which only one operand has distributed.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Keys, Hidden, Ffn }

fn state(k: &Tensor<(Batch, Seq, Hidden)>, v: &Tensor<(Batch, Keys, Ffn)>) {
    k.dot(v, Keys, (Batch,));
}

fn main() {}
