//! Gradients sent to another thread.

use meshwright::tensor::Reduced;
use meshwright::prelude::*;

fn send(gradients: Gradients<Reduced>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    sender.send(gradients).ok();
    std::thread::spawn(move || receiver.iter().map(|gradients: Gradients<Reduced>| gradients.norm()).sum::<f64>());
}

fn main() {}
