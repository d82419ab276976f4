//! A user-defined feature asserted to be whole.

use meshwright::layout::{Axis, AxisSet, DimInfo, Feature, LocalFeature, WholeFeature};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

struct Wide;

impl Feature for Wide {
    type Alone = (Split<Ffn, Tp>,);
    const VARIES: AxisSet = AxisSet::NONE;
    const DIMS: &'static [DimInfo] = &[];
}

impl WholeFeature for Wide {
    type Split<A: Axis> = Wide;
}

impl LocalFeature for Wide {}

#[model]
struct Mlp {
    up: Linear<Hidden, Wide>,
}

fn main() {}
