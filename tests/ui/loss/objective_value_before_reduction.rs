//! A weighted sum has a value after it is reduced, as a loss.

use meshwright::tensor::Objective;

fn report(objective: &Objective) {
    println!("loss {}", objective.value());
}

fn main() {}
