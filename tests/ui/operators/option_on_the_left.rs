//! A sum that begins with `None`.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn sum(branches: Vec<Stream>) -> Stream {
    branches.into_iter().reduce(|sum, branch| sum + branch) + 1.0
}

fn main() {}
