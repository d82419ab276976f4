//! Names of the parts in the order of neither.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Front, Back, Wide }

fn behind(x: &Tensor<(Batch, Seq, Front)>, y: &Tensor<(Batch, Seq, Back)>) {
    x.concat(y, (Back, Front), Wide);
}

fn main() {}
