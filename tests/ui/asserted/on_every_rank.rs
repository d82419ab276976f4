//! A home over `dp` that is said to leave all of a dim to each rank.

use meshwright::layout::OnEveryRank;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn @ dp }

impl OnEveryRank<Ffn> for Dp {}

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
}

fn main() {}
