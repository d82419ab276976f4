//! Scale: a sum divided by the number of this rank's tokens instead of all.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn mean(losses: &Tensor<(Batch, Seq)>) -> f32 {
    let tokens = losses.local_extents().iter().map(|dim| dim.local).product::<usize>();
    losses.sum(Seq).sum(Batch).to_vec()[0] / tokens as f32
}

fn main() {}
