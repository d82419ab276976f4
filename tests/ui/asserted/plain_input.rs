//! A hand-written impl that extends the inputs of a plain layer.

use meshwright::layout::AxisSet;
use meshwright::nn::PlainInput;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

impl PlainInput<Hidden, Ffn> for (Batch, Split<Hidden, Tp>) {
    type Out = (Batch, Ffn);
    const GRADIENT_AXES: AxisSet = AxisSet::NONE;
}

fn main() {}
