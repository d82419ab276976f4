//! A slice along the axis that distributes the samples.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn own(x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Split<Seq, Dp>, Hidden)> {
    x.slice(Seq, Dp)
}

fn main() {}
