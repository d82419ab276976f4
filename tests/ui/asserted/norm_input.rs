//! A norm that is said to take what it cannot.

use meshwright::layout::AxisSet;
use meshwright::nn::NormInput;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

impl NormInput<Hidden> for (Batch, Split<Hidden, Tp>) {
    const GRADIENT_AXES: AxisSet = AxisSet::NONE;
}

fn main() {}
