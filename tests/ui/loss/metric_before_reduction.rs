//! A metric is a ratio like a loss, and a partial sum until it is reduced.

use meshwright::prelude::*;
use meshwright::tensor::Metric;

dims! { Batch @ data, Seq }

fn accuracy(targets: &Targets<(Batch, Seq)>, correct: f64, tokens: u64) -> f64 {
    let metric = Metric::of(targets, correct, tokens);
    metric.value()
}

fn main() {}
