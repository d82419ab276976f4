//! The axes of a split, of which the last two are in the wrong order.

use meshwright::prelude::*;

dims! { Batch, Experts }

type Outputs = Tensor<(Batch, Split<Experts, (Ep, Tp, Cp)>)>;

fn read(x: &Outputs) -> Vec<f32> {
    x.to_local_vec()
}

fn main() {}
