//! A split dim that is gathered under another name.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Keys, Hidden }

fn keys(x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) {
    x.gather_as(Seq, Keys);
}

fn main() {}
