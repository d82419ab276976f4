//! A metric asserted with the wrong shape: the numbers are of a split tensor.

use meshwright::tensor::Metric;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn mean(x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Metric<(Batch, Seq, Hidden)> {
    let block = x.to_local_vec();
    let sum: f64 = block.iter().map(|x| f64::from(*x)).sum();
    Metric::new(x.rank(), sum, block.len() as u64)
}

fn main() {}
