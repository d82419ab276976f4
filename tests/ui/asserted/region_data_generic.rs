//! A tensor rebuilt with another type, for any two shapes.

use meshwright::tensor::SegmentData;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

fn relabel<X: SegmentData, Y: SegmentData>(x: &X) -> Y {
    let mut parts = Vec::new();
    x.add_parts(&mut parts);
    Y::from_parts(&mut || parts.remove(0))
}

fn main() {}
