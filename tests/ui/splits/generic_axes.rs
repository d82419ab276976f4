//! A split over two axes whose order is unknown.

use meshwright::layout::Axis;
use meshwright::prelude::*;

dims! { Batch, Experts }

fn read<A: Axis, B: Axis>(x: &Tensor<(Batch, Split<Experts, (A, B)>)>) -> Vec<f32> {
    x.to_local_vec()
}

fn main() {}
