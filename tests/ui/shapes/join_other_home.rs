//! A distributed dim that is joined to one that is declared without an axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Rows, Hidden }

fn merge(x: &Tensor<(Batch, Seq, Hidden)>) {
    x.join((Batch, Seq), Rows);
}

fn main() {}
