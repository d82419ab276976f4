//! A model owns its parameters.

use meshwright::prelude::*;

dims! { Hidden, Ffn }

#[model]
struct Shared<'a> {
    up: &'a Linear<Hidden, Ffn>,
}

fn main() {}
