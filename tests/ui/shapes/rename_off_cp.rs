//! Positions of a distributed sequence as whole keys.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Keys, Hidden }

fn keys(x: &Tensor<(Batch, Seq, Hidden)>) {
    x.rename(Seq, Keys);
}

fn main() {}
