//! A parameter's gradient can be read when it is summed.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn inspect(loss: Loss<(Batch, Seq)>) -> Option<Vec<f32>> {
    loss.backward().local_block_of("norm.weight")
}

fn main() {}
