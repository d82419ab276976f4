//! A tensor decomposed like in recomputation, and rebuilt with another type.

use meshwright::nn::NormInput;
use meshwright::tensor::SegmentData;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

type Sharded = Tensor<(Batch, Split<Hidden, Tp>)>;
type Stream = Tensor<(Batch, Hidden)>;

fn relabel(x: &Sharded) -> Stream {
    let seal = <(Batch, Hidden) as NormInput<Hidden>>::SEAL;
    let mut values = Vec::new();
    let frame = x.take_apart(&mut values, seal);
    let mut values = values.into_iter();
    Stream::put_together(&frame, &mut || values.next().unwrap(), seal)
}

fn main() {}
