//! Stages are cut between fields: no dim is declared over them.

use meshwright::prelude::*;

dims! { Batch @ data, Depth @ pp, Hidden }

fn scaled(x: &Tensor<(Batch, Depth, Hidden)>) -> Tensor<(Batch, Depth, Hidden)> {
    x * 2.0
}

fn main() {}
