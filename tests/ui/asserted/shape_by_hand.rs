//! A user-defined shape that varies over no axis.

use meshwright::layout::{AxisSet, DimInfo, Dims};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

struct Shape;

impl Dims for Shape {
    const VARIES: AxisSet = AxisSet::NONE;
    const DIMS: &'static [DimInfo] = <(Batch, Hidden)>::DIMS;
    type Usage = <() as Dims>::Usage;
}

fn relabel(x: &Tensor<(Batch, Split<Hidden, Tp>)>) -> Loss<Shape> {
    let x: Tensor<Shape> = Tensor::from_block(x.rank(), &x.sizes(), &x.to_local_vec());
    Loss::mean_of(&x)
}

fn main() {}
