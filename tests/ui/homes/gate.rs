//! A gate over experts that are declared over an axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Experts @ ep }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Gate {
    gate: Linear<Hidden, Experts>,
}

#[forward]
impl Gate {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Seq, Experts)> {
        self.gate.forward(x).softmax()
    }
}

fn main() {}
