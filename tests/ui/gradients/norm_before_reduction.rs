//! The norm of the gradient is that of the sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn report(loss: Loss<(Batch, Seq)>) -> f64 {
    loss.backward().norm()
}

fn main() {}
