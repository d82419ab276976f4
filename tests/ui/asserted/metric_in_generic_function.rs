//! A metric of numbers in a function that is generic in the shape.

use meshwright::layout::Dims;
use meshwright::tensor::Metric;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn share<S: Dims>(x: &Tensor<S>, counts: impl Fn(f32) -> bool) -> Metric<S> {
    let hits: Vec<f32> = x.to_local_vec().into_iter().filter(|x| counts(*x)).collect();
    Metric::<S>::new(x.rank(), hits.len() as f64, x.to_local_vec().len() as u64)
}

fn main() {}
