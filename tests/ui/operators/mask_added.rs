//! A mask as an operand of a sum, and a tensor as a mask.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Keys }

type Scores = Tensor<(Batch, Seq, Keys)>;

fn added(scores: &Scores) -> Scores {
    scores + scores.gt(0.0)
}

fn masked(scores: &Scores, mask: &Scores) -> Scores {
    scores.masked(mask, f32::NEG_INFINITY)
}

fn of_other_dims(x: &Tensor<(Batch, Seq)>) -> Tensor<(Batch, Seq)> {
    x.masked(&Mask::causal(Seq, Keys), f32::NEG_INFINITY)
}

fn main() {}
