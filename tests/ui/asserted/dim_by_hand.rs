//! A hand-written dim whose type and constants contradict each other: distributed over `tp`, and over no axis.

use meshwright::layout::{AxisSet, DimInfo};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

struct Ffn;

impl Dim for Ffn {
    const NAME: &'static str = "Ffn";
    const VARIES: AxisSet = AxisSet::NONE;
    const INFO: DimInfo = <Split<Hidden, Tp> as Dim>::INFO;
    type Usage = <Hidden as Dim>::Usage;
}

fn relabel(x: &Tensor<(Batch, Split<Hidden, Tp>)>) -> Tensor<(Batch, Ffn)> {
    Tensor::from_block(x.rank(), &x.sizes(), &x.to_local_vec())
}

fn main() {}
