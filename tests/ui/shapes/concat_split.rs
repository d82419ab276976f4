//! Parts of one sequence before all of another.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Keys, Wide }

fn behind(x: &Tensor<(Batch, Split<Seq, Tp>)>, y: &Tensor<(Batch, Keys)>) {
    x.concat(y, (Seq, Keys), Wide);
}

fn main() {}
