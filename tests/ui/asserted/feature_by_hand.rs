//! A dim over `dp` that is said to be one of features, and of parameters.

use meshwright::layout::{LocalFeature, ParamDim};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn @ dp }

impl LocalFeature for Ffn {}
impl ParamDim for Ffn {}

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
    gain: Param<(Ffn,)>,
}

fn main() {}
