//! A layer with swapped dims in a function of any layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn twice<L: Layer<Stream, Out = Stream>>(layer: &L, x: &Stream) -> Stream {
    layer.forward(&layer.forward(x))
}

fn call(layer: &Linear<Ffn, Hidden>, x: &Stream) -> Stream {
    twice(layer, x)
}

fn main() {}
