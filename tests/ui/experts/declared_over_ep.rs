//! Stacked weights over a dim that is declared over `ep`.

use meshwright::layout::Stacked;
use meshwright::prelude::*;

dims! { Experts @ ep, Hidden, Ffn }

#[model]
struct Net {
    weight: Param<Stacked<Experts, Hidden, Ffn>>,
}

fn main() {}
