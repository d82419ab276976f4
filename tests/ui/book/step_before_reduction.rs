use meshwright::optim::AdamW;
use meshwright::prelude::*;

dims! { Batch @ data }

fn train(optimizer: &mut AdamW, loss: Loss<(Batch,)>) {
    optimizer.step(1e-3, loss.backward());
}

fn main() {}
