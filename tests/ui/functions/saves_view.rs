//! A forward that saves a view of memory that it does not own.

use meshwright::backend::View;
use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function};

dims! { Batch @ data, Hidden }

struct Borrowed;

impl Function<((Batch, Hidden),)> for Borrowed {
    type Output = Tensor<(Batch, Hidden)>;
    type Saved = View<'static>;

    fn path(&self) -> &str {
        "borrowed"
    }

    fn forward_pass(&self, _: Forward<'_, ((Batch, Hidden),), ()>) -> View<'static> {
        View::from(&[][..] as &[f32])
    }

    fn backward_pass(&self, _: Backward<'_, ((Batch, Hidden),), (), Self::Saved>) {}
}

fn main() {}
