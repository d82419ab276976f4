//! An attribute of the struct above `#[model]`.

use meshwright::prelude::*;

dims! { Hidden, Ffn }

#[sharded(fsdp)]
#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
}

fn main() {}
