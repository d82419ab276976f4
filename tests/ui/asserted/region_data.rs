//! A tensor decomposed like in recomputation, and rebuilt with another type.

use meshwright::nn::NormInput;
use meshwright::tensor::SegmentData;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

type Sharded = Tensor<(Batch, Split<Hidden, Tp>)>;
type Stream = Tensor<(Batch, Hidden)>;

fn relabel(x: &Sharded) -> Stream {
    let seal = <(Batch, Hidden) as NormInput<Hidden>>::SEAL;
    let mut parts = Vec::new();
    x.add_parts(&mut parts, seal);
    let mut parts = parts.into_iter();
    Stream::from_parts(&mut || parts.next().unwrap(), seal)
}

fn main() {}
