//! A user-defined function that gives the rows of experts a row for each token.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ data, Hidden, Experts }

type ExpertTokens = (Routed<(Batch,), Split<Experts, Ep>>, Hidden);

struct Relabel;

impl Function<(ExpertTokens,), ()> for Relabel {
    type Output = Tensor<(Batch, Hidden)>;
    type Saved = ();

    fn path(&self) -> &str {
        "relabel"
    }

    fn forward_pass(&self, _: Forward<'_, (ExpertTokens,), ()>) {}

    fn backward_pass(&self, _: Backward<'_, (ExpertTokens,), (), ()>) {}
}

fn relabeled(rows: &Tensor<ExpertTokens>) -> Tensor<(Batch, Hidden)> {
    apply(Relabel, (rows,), ())
}

fn main() {}
