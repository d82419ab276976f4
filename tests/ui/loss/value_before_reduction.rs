//! A loss is this rank's share until it is reduced.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn report(loss: &Loss<(Batch, Seq)>) {
    println!("loss {}", loss.value());
}

fn main() {}
