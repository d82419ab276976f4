//! Hand-written impls of rules that nothing implements, and of a rule for a user-defined type.

use meshwright::layout::Scattered;
use meshwright::nn::RotatedHeads;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

struct Local;

impl Scattered<Seq, (Batch, Seq, Hidden), (Batch, Split<Seq, Tp>, Hidden)> for Split<Seq, Tp> {}

impl RotatedHeads<Hidden, (Batch, Seq, Hidden)> for Local {}

fn add(x: &Tensor<(Batch, Seq, Hidden)>, y: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
    x + y
}

fn main() {}
