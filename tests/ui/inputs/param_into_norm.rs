//! A parameter of an alias into a norm, and into dropout.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Queries = Param<(Seq, Hidden)>;

fn normed(norm: &RmsNorm<Hidden>, queries: &Queries) -> Tensor<(Seq, Hidden)> {
    norm.forward(queries)
}

fn dropped(dropout: &Dropout, queries: &Queries) -> Tensor<(Seq, Hidden)> {
    dropout.forward(queries)
}

fn main() {}
