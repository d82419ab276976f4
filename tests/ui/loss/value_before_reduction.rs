//! A loss is a partial sum until it is reduced.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn report(loss: &Loss<(Batch, Seq)>) {
    println!("loss {}", loss.value());
}

fn main() {}
