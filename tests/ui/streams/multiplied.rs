//! A gate that is split along the sequence, and a value that is not.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Plain = Tensor<(Batch, Seq, Hidden)>;
type Sequence = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Gate {}

#[forward]
impl Gate {
    fn forward(&self, (x, gate): &(Plain, Sequence)) -> Plain {
        x * gate.silu()
    }
}

fn main() {}
