//! The sign of a loss is that of its terms, for gradient ascent too.

use meshwright::prelude::*;
use meshwright::tensor::Pending;

dims! { Batch @ data, Score }

type Scores = Tensor<(Batch, Score)>;

fn ascend(reward: &Scores) -> Gradients<Pending> {
    (-Loss::mean_of(reward)).backward()
}

fn bounded(error: &Scores, reward: &Scores) -> Gradients<Pending> {
    (Loss::mean_of(error) + -Loss::mean_of(reward)).backward()
}

fn main() {}
