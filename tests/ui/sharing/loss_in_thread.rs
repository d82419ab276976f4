//! A loss that another thread reduces.

use meshwright::prelude::*;

dims! { Batch @ data }

fn report(loss: Loss<(Batch,)>) -> std::thread::JoinHandle<f64> {
    std::thread::spawn(move || loss.reduce().value())
}

fn main() {}
