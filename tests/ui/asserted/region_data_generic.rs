//! A tensor rebuilt with another type, for any two shapes.

use meshwright::tensor::RegionData;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

fn relabel<X: RegionData, Y: RegionData<Frame = X::Frame>>(x: &X) -> Y {
    let mut values = Vec::new();
    let frame = x.take_apart(&mut values);
    Y::put_together(&frame, &mut || values.remove(0))
}

fn main() {}
