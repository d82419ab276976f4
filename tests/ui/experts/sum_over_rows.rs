//! Sums and splits of rows; ranks have different numbers of them.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Experts }

type ExpertTokens = Tensor<(Routed<(Batch,), Experts>, Hidden)>;

fn summed(rows: &ExpertTokens) {
    let _ = rows.sum(Batch);
}

fn split(rows: &ExpertTokens) {
    let _ = rows.slice(Hidden, Tp);
}

fn main() {}
