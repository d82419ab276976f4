//! A tensor of other dims, in code that is generic in dims.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

fn gated<B: Dim, S: Dim, H: Dim, F: Dim>(x: &Tensor<(B, S, H)>, gate: &Tensor<(B, F)>) -> Tensor<(B, S, H)> {
    x.mul_along(gate)
}

fn wrong_side<B: Dim, S: Dim, H: Dim>(x: &Tensor<(B, S, H)>, gate: &Tensor<(B, S)>) -> Tensor<(B, S)> {
    gate.mul_along(x)
}

fn main() {}
