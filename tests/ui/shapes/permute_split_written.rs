//! An order that writes the split, which stays as it is.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn turn(x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) {
    x.permute((Batch, Hidden, Split::<Seq, Tp>));
}

fn main() {}
