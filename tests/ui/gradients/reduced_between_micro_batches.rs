//! Gradients are reduced once, after all micro-batches.

use meshwright::prelude::*;
use meshwright::optim::AdamW;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn train(first: Loss<(Batch, Seq)>, last: Loss<(Batch, Seq)>, optimizer: &mut AdamW) {
    let gradients = first.accumulate().reduce();
    optimizer.step(1e-3, gradients.backward(last).reduce());
}

fn main() {}
