//! Pipeline stages are cut between fields: no dim is declared over `pp`.

use meshwright::prelude::*;

dims! { Batch @ data, Depth @ pp, Hidden }

fn scaled(x: &Tensor<(Batch, Depth, Hidden)>) -> Tensor<(Batch, Depth, Hidden)> {
    x * 2.0
}

fn main() {}
