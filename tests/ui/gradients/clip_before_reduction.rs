//! Gradients are clipped by the norm of the sum.

use meshwright::prelude::*;
use meshwright::optim::AdamW;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn train(loss: Loss<(Batch, Seq)>, optimizer: &mut AdamW) {
    let mut gradients = loss.backward();
    gradients.clip(1.0);
    optimizer.step(1e-3, gradients.reduce());
}

fn main() {}
