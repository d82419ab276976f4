//! A hand-written impl that makes a dim over `dp` a feature and a parameter dim.

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
