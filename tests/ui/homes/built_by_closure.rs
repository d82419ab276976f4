//! A layer that a closure builds.

use meshwright::nn::build;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn @ dp }

fn up(rank: &Rank, sizes: &Sizes) -> Linear<Hidden, Ffn> {
    let build = || build::<Linear<Hidden, Ffn>>(rank, sizes).map(|built| built.model);
    build().expect("the sizes fit")
}

fn main() {}
