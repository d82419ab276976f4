//! A hand-written impl that extends the inputs of a row-parallel layer.

use meshwright::layout::AxisSet;
use meshwright::nn::{AllReduce, RowInput};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

impl RowInput<Hidden, Ffn, Tp, AllReduce> for (Batch, Hidden) {
    type Out = (Batch, Ffn);
    const GRADIENT_AXES: AxisSet = AxisSet::NONE;
    const SCATTER: Option<usize> = None;
}

fn main() {}
