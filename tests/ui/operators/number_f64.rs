//! Factors of 64 bits.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn scaled(x: &Stream, decay: f64) -> Stream {
    x * decay
}

fn half(x: &Stream) -> Stream {
    x * 0.5f64
}

fn main() {}
