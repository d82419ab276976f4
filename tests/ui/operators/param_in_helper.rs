//! A helper that scales a parameter.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Vector = Param<(Hidden,)>;

fn scaled(gain: &Vector, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
    let scale = |gain: &Vector| gain * 2.0;
    x * scale(gain)
}

fn main() {}
