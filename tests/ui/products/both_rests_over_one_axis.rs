//! Queries and keys that are split over one axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Keys, Hidden }

fn scores(q: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>, k: &Tensor<(Batch, Split<Keys, Tp>, Hidden)>) {
    q.dot(k, Hidden, (Batch,));
}

fn main() {}
