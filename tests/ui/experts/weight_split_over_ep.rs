//! Stacked weights, each of them split over `ep`.

use meshwright::layout::Stacked;
use meshwright::prelude::*;

dims! { Experts, Hidden, Ffn }

#[model]
struct Net {
    weight: Param<Stacked<Experts, Hidden, Split<Ffn, Ep>>>,
}

fn main() {}
