//! A factor or a sign belongs to the terms of a loss.

use meshwright::prelude::*;

dims! { Batch @ data }

fn weighted(loss: Loss<(Batch,)>) -> Loss<(Batch,)> {
    0.1 * loss
}

fn difference(real: Loss<(Batch,)>, fake: Loss<(Batch,)>) -> Loss<(Batch,)> {
    real - fake
}

fn main() {}
