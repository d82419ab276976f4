//! Gradients that no optimizer applies.

#![deny(unused_must_use)]

use meshwright::prelude::*;

dims! { Batch @ data, Seq }

fn train(loss: Loss<(Batch, Seq)>) {
    loss.backward().reduce();
}

fn main() {}
