//! Gradients are reduced once.

use meshwright::prelude::*;
use meshwright::optim::AdamW;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn train(loss: Loss<(Batch, Seq)>, optimizer: &mut AdamW) {
    optimizer.step(1e-3, loss.backward().reduce().reduce());
}

fn main() {}
