//! A split over the data axes by their common name, which would be a second type of the split over the three.

use meshwright::prelude::*;

dims! { Batch, Experts }

fn read(x: &Tensor<(Batch, Split<Experts, Data>)>) -> Vec<f32> {
    x.to_local_vec()
}

fn main() {}
