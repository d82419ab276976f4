//! A split over one axis twice.

use meshwright::prelude::*;

dims! { Batch, Experts }

fn read(x: &Tensor<(Batch, Split<Experts, (Tp, Tp)>)>) -> Vec<f32> {
    x.to_local_vec()
}

fn main() {}
