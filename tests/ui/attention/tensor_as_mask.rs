//! A tensor of numbers that are to be added to the scores.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

type OnAll<H> = Tensor<(Batch, Seq, H, HeadDim)>;

fn attend(
    core: &Attention<Heads, Heads, HeadDim, Bidirectional>,
    x: OnAll<Heads>,
    mask: Tensor<(Batch, Heads, Seq, Memory)>,
) -> OnAll<Heads> {
    core.forward(&(x.clone(), x.clone(), x, mask))
}

fn main() {}
