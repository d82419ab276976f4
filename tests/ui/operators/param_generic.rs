//! A gain over any dim, in a generic function.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn scale<B: Dim, D: Dim, E: Dim>(x: &Tensor<(B, D)>, gain: &Param<(E,)>) -> Tensor<(B, D)> {
    x * gain
}

fn main() {}
