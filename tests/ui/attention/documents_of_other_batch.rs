//! Documents of other samples than the queries, in attention that is context-parallel and in attention that is not.

use meshwright::nn::Ring;
use meshwright::prelude::*;

dims! { Batch @ data, Rows @ data, Seq @ cp, Words, Heads, HeadDim }

type Distributed = <Attention<Heads, Heads, HeadDim> as Shard<Ring<Cp>>>::Sharded;

fn attend_over_cp(
    core: &Distributed,
    documents: &Documents<(Rows, Seq)>,
    x: Tensor<(Batch, Seq, Heads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(x.clone(), x.clone(), x, documents))
}

fn attend(
    core: &Attention<Heads, Heads, HeadDim>,
    documents: &Documents<(Rows, Words)>,
    x: Tensor<(Batch, Words, Heads, HeadDim)>,
) -> Tensor<(Batch, Words, Heads, HeadDim)> {
    core.forward(&(x.clone(), x.clone(), x, documents))
}

fn main() {}
