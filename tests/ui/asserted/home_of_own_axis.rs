//! A user-defined axis and home.

use meshwright::layout::{Axis, AxisGroup, AxisId, AxisSet, Home};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

struct Rows;

impl AxisGroup for Rows {
    const AXES: AxisSet = AxisSet::of(AxisId::Tp);
    type Usage = <Tp as AxisGroup>::Usage;
}

impl Axis for Rows {
    const ID: AxisId = AxisId::Tp;
}

impl Home for Rows {}

struct Ffn;

impl Whole for Ffn {
    const DECLARED_NAME: &'static str = "Ffn";
    type Home = Rows;
}

fn split(x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Split<Hidden, Rows>)> {
    x.slice(Hidden, Rows)
}

fn main() {}
