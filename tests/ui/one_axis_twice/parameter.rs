//! A parameter whose dims are both split over one axis.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

#[model]
struct Mlp {
    up: Param<(Split<Hidden, Tp>, Split<Ffn, Tp>)>,
}

fn main() {}
