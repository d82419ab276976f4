//! A second backward of one forward pass.

use meshwright::prelude::*;
use meshwright::tensor::{ForwardPass, WeightGradients};

dims! { Batch @ data, Hidden }

type Stream = Tensor<(Batch, Hidden)>;

fn twice(rank: &Rank, x: &Stream, model: impl Fn(&Stream) -> Stream) {
    let mut gradients = Gradients::of_passes(rank);
    let (y, mut pass) = ForwardPass::record(rank, x, model);
    pass.add_loss(&y, |y| Loss::mean_of(y));
    let now = WeightGradients::Now { complete: &[] };
    pass.backward(&mut gradients, None, now);
    pass.backward(&mut gradients, None, now);
}

fn main() {}
