//! A parameter split over `fsdp` in its type.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

#[model]
struct Mlp {
    up: Param<(Hidden, Split<Ffn, Fsdp>)>,
    down: Param<(Split<Ffn, Fsdp>, Hidden)>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        x.contract(&self.up).gelu().contract(&self.down).all_reduce()
    }
}

fn main() {}
