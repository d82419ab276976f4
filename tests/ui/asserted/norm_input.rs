//! A hand-written impl that extends the inputs of a norm.

use meshwright::layout::AxisSet;
use meshwright::nn::NormInput;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

impl NormInput<Hidden> for (Batch, Split<Hidden, Tp>) {
    const GRADIENT_AXES: AxisSet = AxisSet::NONE;
}

fn main() {}
