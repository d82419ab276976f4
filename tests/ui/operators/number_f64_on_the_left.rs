//! Factors of 64 bits on the left.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn scaled(x: &Stream, decays: &[f64]) -> Vec<Stream> {
    decays.iter().map(|decay| *decay * x).collect()
}

fn mirrored(x: &Stream) -> Stream {
    1.0f64 - x
}

fn main() {}
