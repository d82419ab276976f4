//! An unreduced loss in a format string.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn report(loss: &Loss<(Batch, Seq)>) {
    println!("loss {loss}");
}

fn main() {}
