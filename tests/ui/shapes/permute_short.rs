//! An order that leaves a dim out.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn turn(x: &Tensor<(Batch, Seq, Hidden)>) {
    x.permute((Batch, Hidden));
}

fn main() {}
