//! A `Rope` over another dim in a function of any layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, HeadDim }

type Queries = Tensor<(Batch, Seq, Heads, HeadDim)>;

fn rotate<L: Layer<Queries>>(layer: &L, x: &Queries) -> L::Out {
    layer.forward(x)
}

fn call(rope: &Rope<Hidden>, x: &Queries) {
    rotate(rope, x);
}

fn main() {}
