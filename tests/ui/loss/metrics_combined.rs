//! Metrics are reduced before they are added or scaled.

use meshwright::prelude::*;
use meshwright::tensor::Metric;

dims! { Batch @ data, Seq }

type Accuracy = Metric<(Batch, Seq)>;

fn both(first: Accuracy, second: Accuracy) -> f64 {
    (first + second).reduce().value()
}

fn all(metrics: Vec<Accuracy>, mut sum: Accuracy) -> f64 {
    for metric in metrics {
        sum += metric;
    }
    sum.reduce().value()
}

fn percent(metric: Accuracy) -> f64 {
    (metric * 100.0).reduce().value()
}

fn main() {}
