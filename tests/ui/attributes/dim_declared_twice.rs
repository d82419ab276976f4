//! A dim declared twice.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Batch }

#[model]
struct Model {
    norm: RmsNorm<Hidden>,
}

fn main() {}
