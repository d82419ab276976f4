//! A mean over a whole and a distributed dim, used without its reduction.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

fn pooled(x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch,)> {
    x.mean((Seq, Hidden)).tanh()
}

fn main() {}
