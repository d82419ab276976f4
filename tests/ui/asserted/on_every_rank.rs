//! A hand-written impl that makes a dim over `dp` whole on each rank.

use meshwright::layout::OnEveryRank;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn @ dp }

impl OnEveryRank<Ffn> for Dp {}

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
}

fn main() {}
