//! Scale: losses multiplied by the number of ranks the wrong number of times.

use meshwright::prelude::*;
use meshwright::tensor::Pending;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn backward(loss: Loss<(Batch, Seq)>, rank: &Rank) -> Gradients<Pending> {
    let ranks = rank.comms().shape().world_size() as f32;
    (loss * ranks).backward()
}

fn main() {}
