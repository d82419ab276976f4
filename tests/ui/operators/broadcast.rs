//! A mask of fewer dims, added to a stream.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn masked(x: &Stream) -> Stream {
    let mask: Tensor<(Seq, Hidden)> = Tensor::from_fn(x.rank(), &x.sizes()[1..], |at| at[0] as f32);
    x + &mask
}

fn main() {}
