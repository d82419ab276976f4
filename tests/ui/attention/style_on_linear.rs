//! A style of context parallelism on a layer that reads no other positions.

use meshwright::prelude::*;

dims! { Hidden }

#[model]
struct Layers {
    #[sharded(cp = "ring")]
    up: Linear<Hidden, Hidden>,
}

fn main() {}
