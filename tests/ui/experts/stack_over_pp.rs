//! Stacked weights over pipeline stages.

use meshwright::layout::Stacked;
use meshwright::prelude::*;

dims! { Experts, Hidden, Ffn }

#[model]
struct Net {
    weight: Param<Stacked<Split<Experts, Pp>, Hidden, Ffn>>,
}

fn main() {}
