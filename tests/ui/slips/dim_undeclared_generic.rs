//! A dim that is not declared, in a bound.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn call<L: Layer<Tensor<(Batch, Sequence, Hidden)>>>(l: &L) {}

fn main() {}
