//! Documents declared for a part of the sequence, because the stream of the same tokens is split.

use meshwright::nn::Ring;
use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Heads, HeadDim }

type Distributed = <Attention<Heads, Heads, HeadDim> as Shard<Ring<Cp>>>::Sharded;

fn attend(
    core: &Distributed,
    documents: &Documents<(Batch, Split<Seq, Tp>)>,
    x: Tensor<(Batch, Seq, Heads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(x.clone(), x.clone(), x, documents))
}

fn main() {}
