//! Integers as factors and terms.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn doubled(x: &Stream) -> Stream {
    x * 2
}

fn counted(x: &Stream, heads: usize) -> Stream {
    x + heads
}

fn main() {}
