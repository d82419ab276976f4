//! Stacked weights whose stack and columns are split over one axis.

use meshwright::layout::Stacked;
use meshwright::prelude::*;

dims! { Experts, Hidden, Ffn }

#[model]
struct Net {
    weight: Param<Stacked<Split<Experts, (Ep, Tp)>, Hidden, Split<Ffn, Tp>>>,
}

fn main() {}
