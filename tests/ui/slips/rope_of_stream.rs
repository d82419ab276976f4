//! A `Rope` of a stream without heads.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn call(rope: &Rope<Hidden>, x: &Stream) {
    rope.forward(x);
}

fn main() {}
