//! A loss divided by hand.

use meshwright::prelude::*;
use meshwright::tensor::Pending;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn train(loss: Loss<(Batch, Seq)>, micro_batches: f32) -> Gradients<Pending> {
    (loss / micro_batches).backward()
}

fn main() {}
