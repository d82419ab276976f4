//! Learned positions by hand, along a sequence over `dp`.

use meshwright::prelude::*;

dims! { Batch, Seq @ dp, Hidden }

type Positions = Param<(Seq, Hidden)>;

#[model]
struct Embedded {
    positions: Positions,
}

#[forward]
impl Embedded {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        x + &self.positions
    }
}

fn main() {}
