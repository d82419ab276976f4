//! Two tensors whose other dims have another order.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Heads, Front, Back, Wide }

fn behind(x: &Tensor<(Batch, Heads, Seq, Front)>, y: &Tensor<(Batch, Seq, Heads, Back)>) {
    x.concat(y, (Front, Back), Wide);
}

fn main() {}
