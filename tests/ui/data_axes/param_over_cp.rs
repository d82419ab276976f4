//! Learned positions by hand, along a sequence over `cp`, in a model whose user names the dim.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

#[model]
struct Positions<P: Whole> {
    rows: Param<(P, Hidden)>,
}

#[forward]
impl<P: Whole> Positions<P> {
    fn forward(&self, x: &Tensor<(Batch, P, Hidden)>) -> Tensor<(Batch, P, Hidden)> {
        x + &self.rows
    }
}

#[model]
struct Embedded {
    positions: Positions<Seq>,
}

fn main() {}
