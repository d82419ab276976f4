//! A bias over a pair of dims, one declared over an axis.

use meshwright::prelude::*;

dims! { Batch @ data, Heads @ dp, HeadDim }

#[model]
struct Biased {
    bias: Bias<(Heads, HeadDim)>,
}

fn main() {}
