//! A user-defined exit from a tensor-parallel region, without a reduction.

use meshwright::layout::With;
use meshwright::nn::{RegionExit, Row};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

struct Leave;

impl<Lead: With<F>, F, A> RegionExit<Lead, F, A> for Leave {
    type Out = Lead::Out;
    const SCATTER: Option<usize> = None;
}

#[model]
struct Mlp {
    down: Linear<Ffn, Hidden, Row<Tp, Leave>>,
}

fn main() {}
