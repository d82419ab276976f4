//! Branches summed by an iterator.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn sum(x: &Tensor<(Batch, Seq, Ffn)>, branches: &[Tensor<(Batch, Seq, Split<Ffn, Tp>)>]) -> Tensor<(Batch, Seq, Ffn)> {
    branches.iter().fold(x.clone(), |sum, branch| sum + branch)
}

fn main() {}
