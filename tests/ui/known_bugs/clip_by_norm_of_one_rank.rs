//! Gradient norm: squares summed over some ranks only, or counted twice.

use meshwright::prelude::*;
use meshwright::tensor::Pending;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn clipped(loss: Loss<(Batch, Seq)>) -> Gradients<Pending> {
    let mut gradients = loss.backward();
    if gradients.norm() > 1.0 {
        gradients.clip(1.0);
    }
    gradients
}

fn main() {}
