//! A product that each rank has a part of, used as the sum.

use meshwright::prelude::*;

dims! { Batch @ data, Keys, Hidden }

fn scores(q: &Tensor<(Batch, Split<Hidden, Tp>)>, k: &Tensor<(Keys, Split<Hidden, Tp>)>) -> Tensor<(Batch, Keys)> {
    q.dot(k, Hidden, ())
}

fn main() {}
