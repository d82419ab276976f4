//! A sum over all dims, as a factor.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn normalized(x: &Tensor<(Hidden,)>) -> Tensor<(Hidden,)> {
    x * x.sum(Hidden)
}

fn main() {}
