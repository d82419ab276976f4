//! A layer over a data axis, built by a closure.

use meshwright::nn::{Col, build};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

fn layers(rank: &Rank, sizes: &Sizes) -> Vec<Linear<Hidden, Ffn, Col<Dp>>> {
    let layer = |_| build(rank, sizes).expect("the sizes fit").model;
    (0..2).map(layer).collect()
}

fn main() {}
