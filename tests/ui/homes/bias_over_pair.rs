//! A bias over a pair of dims of which one is declared over an axis.

use meshwright::prelude::*;

dims! { Batch @ data, Heads @ dp, HeadDim }

#[model]
struct Biased {
    bias: Bias<(Heads, HeadDim)>,
}

fn main() {}
