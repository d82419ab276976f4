//! A whole dim that is cut into a distributed one.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Wide, Back }

fn parts(x: &Tensor<(Batch, Wide)>) {
    x.cut(Wide, (Seq, Back), [4]);
}

fn main() {}
