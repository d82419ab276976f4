//! A metric is a ratio like a loss, and this rank's share until it is reduced.

use meshwright::prelude::*;
use meshwright::tensor::Metric;

dims! { Batch @ data, Seq }

fn accuracy(rank: &Rank, correct: f64, tokens: u64) -> f64 {
    let metric: Metric<(Batch, Seq)> = Metric::new(rank, correct, tokens);
    metric.value()
}

fn main() {}
