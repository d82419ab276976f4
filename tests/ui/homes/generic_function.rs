//! A function that is generic in its layer, given one over a dim that is declared over an axis.

use meshwright::nn::build;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn @ cp }

fn built<L: Build>(rank: &Rank, sizes: &Sizes) -> L {
    build::<L>(rank, sizes).expect("the sizes fit").model
}

fn run(rank: &Rank, sizes: &Sizes, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Ffn)> {
    let up = built::<Linear<Hidden, Ffn>>(rank, sizes);
    up.forward(x)
}

fn main() {}
