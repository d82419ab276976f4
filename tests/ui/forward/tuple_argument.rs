//! A module of two inputs given them in the wrong order.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, (x, gate): &(Stream, Tensor<(Batch, Seq)>)) -> (Stream, Tensor<(Batch, Seq)>) {
        (self.norm.forward(x), gate.clone())
    }
}

fn run(block: &Block, x: Stream, gate: Tensor<(Batch, Seq)>) -> (Stream, Tensor<(Batch, Seq)>) {
    block.forward(&(gate, x))
}

fn main() {}
