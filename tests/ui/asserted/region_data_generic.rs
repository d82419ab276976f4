//! A tensor rebuilt with another type, for any two shapes.

use meshwright::tensor::SegmentData;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

fn relabel<X: SegmentData, Y: SegmentData<Frame = X::Frame>>(x: &X) -> Y {
    let mut values = Vec::new();
    let frame = x.take_apart(&mut values);
    Y::put_together(&frame, &mut || values.remove(0))
}

fn main() {}
