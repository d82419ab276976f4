//! A sum over a varying axis, by a contraction with a split weight.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

struct Own {
    down: Param<(Split<Ffn, Tp>, Hidden)>,
}

impl Own {
    fn forward(&self, x: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        x.slice(Seq, Tp).contract(&self.down).all_reduce()
    }
}

fn main() {}
