//! A residual whose branch comes from a layer of generic type.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Sequence = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type Plain = Tensor<(Batch, Seq, Hidden)>;

fn residual<L: Layer<Sequence, Out = Plain>>(layer: &L, x: &Sequence) -> Sequence {
    x + layer.forward(x)
}

fn main() {}
