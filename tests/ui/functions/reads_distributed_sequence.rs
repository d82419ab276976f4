//! A function that reads along a sequence that is distributed over `cp`, in a method of a generic layer.

use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ data, Seq @ cp, Hidden }

struct PrefixSum;

impl<B: Dim, S: Local, H: Dim> Function<((B, S, H),)> for PrefixSum {
    type Output = Tensor<(B, S, H)>;
    type Saved = ();

    fn path(&self) -> &str {
        "prefix_sum"
    }

    fn forward_pass(&self, _: Forward<'_, ((B, S, H),), ()>) {}

    fn backward_pass(&self, _: Backward<'_, ((B, S, H),), (), ()>) {}
}

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn each<'a>(layers: impl Iterator<Item = &'a Stream>) -> Vec<Stream> {
    layers.map(|x| apply(PrefixSum, (x,), ())).collect()
}

fn main() {}
