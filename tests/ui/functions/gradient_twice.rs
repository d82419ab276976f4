//! A backward that takes one gradient twice.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function};

dims! { Batch @ data, Hidden }

struct Twice;

impl Function<((Batch, Hidden),)> for Twice {
    type Output = Tensor<(Batch, Hidden)>;
    type Saved = ();

    fn path(&self) -> &str {
        "twice"
    }

    fn forward_pass(&self, _: Forward<'_, ((Batch, Hidden),), ()>) {}

    fn backward_pass(&self, call: Backward<'_, ((Batch, Hidden),), (), ()>) {
        let [dx] = call.input_gradients;
        for result in [dx.target(), dx.target()].into_iter().flatten() {
            drop(result);
        }
    }
}

fn main() {}
