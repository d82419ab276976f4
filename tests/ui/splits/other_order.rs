//! The axes of a split, from the innermost to the outermost.

use meshwright::prelude::*;

dims! { Batch, Experts }

fn read(x: &Tensor<(Batch, Split<Experts, (Tp, Ep)>)>) -> Vec<f32> {
    x.to_local_vec()
}

fn main() {}
