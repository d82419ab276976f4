//! A whole dim that is parted into a distributed one.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Rows, Side }

fn split(x: &Tensor<(Batch, Rows)>) {
    x.part(Rows, (Seq, Side), 2);
}

fn main() {}
