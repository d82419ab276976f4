//! A hand-written impl that allows attention on a shard of the sequence.

use meshwright::layout::Entry;
use meshwright::nn::QueriesOf;
use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Heads, HeadDim }

type Heads4 = (Batch, Seq, Heads, HeadDim);

impl<K, M, V, Values> QueriesOf<Heads, HeadDim, K, M, V, Heads4, Values> for Heads4 {
    type Out = (Batch, Seq, Heads, HeadDim);
    const ENTRIES: [Entry; 2] = [Entry::Stay, Entry::Stay];
}

fn attend(
    core: &Attention<Heads, Heads, HeadDim>,
    x: Tensor<(Batch, Seq, Heads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(x.clone(), x.clone(), x))
}

fn main() {}
