//! A metric of a tensor, but declared as one of another shape.

use meshwright::tensor::Metric;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Accuracy = Metric<(Batch, Seq)>;

fn accuracy(hits: &[Tensor<(Batch, Split<Seq, Tp>)>]) -> Vec<Accuracy> {
    hits.iter().map(|hits| Metric::mean_of(hits)).collect()
}

fn main() {}
