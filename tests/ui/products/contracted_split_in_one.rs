//! A sum over a dim that only one operand has a part of.

use meshwright::prelude::*;

dims! { Batch @ data, Keys, Hidden }

fn scores(q: &Tensor<(Batch, Split<Hidden, Tp>)>, k: &Tensor<(Keys, Hidden)>) {
    q.dot(k, Hidden, ());
}

fn main() {}
