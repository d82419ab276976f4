//! Weighted losses with counts of a batch and of a step, and a loss without a weight.

use meshwright::prelude::*;
use meshwright::tensor::StepCount;

dims! { Batch @ data, Seq, Hidden }

type Tokens = Loss<(Batch, Seq)>;
type Samples = Loss<(Batch,)>;

fn without_weight(tokens: Tokens, samples: Samples) {
    let _ = (tokens.weighted(1.0) + samples).backward().reduce();
}

fn weight_of_one(tokens: Tokens, samples: Samples) {
    let _ = tokens + samples.weighted(0.1);
}

fn of_batch_and_step(tokens: Tokens, samples: Samples, count: &StepCount<(Batch,)>) {
    let _ = (tokens.weighted(1.0) + samples.weighted_over(0.1, count)).backward().reduce();
}

fn of_step_and_batch(tokens: Tokens, samples: Samples, count: &StepCount<(Batch, Seq)>) {
    let _ = (tokens.weighted_over(1.0, count) + samples.weighted(0.1)).backward().reduce();
}

fn main() {}
