//! `#[model]` on an impl block.

use meshwright::prelude::*;

dims! { Hidden }

struct Mlp;

#[model]
impl Mlp {}

fn main() {}
