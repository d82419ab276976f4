//! A layer with whole results in a residual of any such layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

fn residual<L>(layer: &L, x: &Stream) -> Stream
where
    L: Layer<Stream, Out = Tensor<(Batch, Seq, Hidden)>>,
{
    x + layer.forward(x)
}

fn main() {}
