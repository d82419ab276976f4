//! A partial sum over an axis that still distributes a dim of it.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ data, Ffn, Heads }

struct Sum;

type Input = ((Batch, Split<Heads, Tp>, Ffn),);

impl Function<Input> for Sum {
    type Output = Partial<(Batch, Split<Heads, Tp>), Tp>;
    type Saved = ();

    fn path(&self) -> &str {
        "sum"
    }

    fn forward_pass(&self, _: Forward<'_, Input, ()>) {}

    fn backward_pass(&self, _: Backward<'_, Input, (), ()>) {}
}

fn sum(x: &Tensor<(Batch, Split<Heads, Tp>, Ffn)>) -> Partial<(Batch, Split<Heads, Tp>), Tp> {
    apply(Sum, (x,), ())
}

fn main() {}
