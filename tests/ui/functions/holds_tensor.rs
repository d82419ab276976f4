//! A function that holds a tensor: no gradient would flow into it.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function};

dims! { Batch @ data, Hidden }

struct Scale {
    by: Tensor<(Batch, Hidden)>,
}

impl Function<((Batch, Hidden),)> for Scale {
    type Output = Tensor<(Batch, Hidden)>;
    type Saved = ();

    fn path(&self) -> &str {
        "scale"
    }

    fn forward_pass(&self, _: Forward<'_, ((Batch, Hidden),), ()>) {
        self.by.to_local_vec();
    }

    fn backward_pass(&self, _: Backward<'_, ((Batch, Hidden),), (), ()>) {}
}

fn main() {}
