//! A stack of blocks whose dim is declared over an axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

type Stream = Tensor<(Batch, Hidden)>;

#[model]
struct Mix<D: Whole> {
    mix: Linear<D, D>,
}

#[forward]
impl<D: Whole> Mix<D> {
    fn forward(&self, x: &Tensor<(Batch, D)>) -> Tensor<(Batch, D)> {
        self.mix.forward(x)
    }
}

#[model]
struct Mixer {
    blocks: Stack<Mix<Seq>>,
}

#[forward]
impl Mixer {
    fn forward(&self, x: &Tensor<(Batch, Seq)>) -> Tensor<(Batch, Seq)> {
        self.blocks.forward(x)
    }
}

fn main() {}
