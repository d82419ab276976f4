//! A loop over micro-batches that begins with `backward`, which is that of the last one.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

fn norm(micro_batches: &[Tensor<(Batch, Hidden)>]) -> f64 {
    let mut gradients = Loss::mean_of(&micro_batches[0]).backward();
    for x in &micro_batches[1..] {
        gradients = gradients.accumulate(Loss::mean_of(x));
    }
    gradients.reduce().norm()
}

fn main() {}
