//! A `Rope` of a stream without samples.

use meshwright::prelude::*;

dims! { Seq, Hidden }

type Stream = Tensor<(Seq, Hidden)>;

fn call(rope: &Rope<Hidden>, x: &Stream) {
    rope.forward(x);
}

fn main() {}
