//! Weighted losses of micro-batches: with counts of one micro-batch, the count of another shape, and a plain loss.

use meshwright::prelude::*;
use meshwright::tensor::{Objective, StepCount};

dims! { Batch @ data, Seq, Hidden }

type Split = Loss<(Batch, meshwright::Split<Seq, Tp>)>;

fn each_by_its_own_count(first: Objective, second: Objective) {
    let _ = first.accumulate().backward(second).reduce();
}

fn added_to_a_loss(first: Loss<(Batch,)>, second: Objective) {
    let _ = first.accumulate().backward(second).reduce();
}

fn over_another_count(loss: Split, count: &StepCount<(Batch, Seq)>) {
    let _ = loss.weighted_over(1.0, count).backward().reduce();
}

fn main() {}
