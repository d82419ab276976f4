//! Integers on the left.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn doubled(x: &Stream) -> Stream {
    2 * x
}

fn counted(x: &Stream, heads: usize) -> Stream {
    heads * x
}

fn main() {}
