//! A dim declared over an axis that does not exist.

use meshwright::prelude::*;

dims! { Batch @ dat, Seq @ cpp, Hidden }

#[model]
struct Model {
    norm: RmsNorm<Hidden>,
}

fn main() {}
