//! An order that names a dim twice.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn turn(x: &Tensor<(Batch, Seq, Hidden)>) {
    x.permute((Batch, Seq, Seq));
}

fn main() {}
