//! Scale: label smoothing takes the mean over this rank's shard of the vocabulary.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Vocab }

fn smoothing(log_probabilities: &Tensor<(Batch, Seq, Split<Vocab, Tp>)>) -> Loss<(Batch, Seq)> {
    Loss::mean_of(&log_probabilities.mean(Vocab))
}

fn main() {}
