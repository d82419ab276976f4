//! Gradients are neither added nor scaled: a rank's gradients are divided once, by the count of all ranks.

use meshwright::optim::Sgd;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

type Stream = Tensor<(Batch, Hidden)>;

fn both(x: &Stream, y: &Stream, sgd: &mut Sgd) {
    let one = Loss::mean_of(x).backward().reduce();
    let other = Loss::mean_of(y).backward().reduce();
    sgd.step(0.1, one + other);
}

fn averaged(x: &Stream, rank: &Rank, sgd: &mut Sgd) {
    let ranks = rank.comms().shape().world_size() as f32;
    sgd.step(0.1, (Loss::mean_of(x).backward() / ranks).reduce());
}

fn main() {}
