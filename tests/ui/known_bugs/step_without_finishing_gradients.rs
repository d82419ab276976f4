//! Missing reduction: a second path through the train step forgot to finish the gradients.

use meshwright::prelude::*;
use meshwright::optim::AdamW;
use meshwright::tensor::Pending;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn forward_backward(loss: Loss<(Batch, Seq)>) -> Gradients<Pending> {
    loss.backward()
}

fn optimizer_step(optimizer: &mut AdamW, gradients: Gradients<Pending>) {
    optimizer.step(1e-3, gradients);
}

fn main() {}
