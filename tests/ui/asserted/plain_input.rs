//! A plain layer that is said to take what it cannot.

use meshwright::layout::AxisSet;
use meshwright::nn::PlainInput;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

impl PlainInput<Hidden, Ffn> for (Batch, Split<Hidden, Tp>) {
    type Out = (Batch, Ffn);
    const GRADIENT_AXES: AxisSet = AxisSet::NONE;
}

fn main() {}
