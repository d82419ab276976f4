//! A helper that slices over any axis.

use meshwright::layout::Axis;
use meshwright::prelude::*;

dims! { Batch @ data, Seq }

fn own<A: Axis>(x: &Tensor<(Batch, Seq)>, axis: A) -> Tensor<(Batch, Split<Seq, A>)> {
    x.slice(Seq, axis)
}

fn main() {}
