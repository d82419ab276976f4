//! Initial values that do not exist, and numbers out of range.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

#[model]
struct Net {
    #[init(zero)]
    norm: LayerNorm<Hidden>,
    #[init(normal(-0.02))]
    up: Linear<Hidden, Hidden>,
    #[init(normal)]
    down: Linear<Hidden, Hidden>,
    #[init(bias = gauss)]
    out: LayerNorm<Hidden>,
}

fn main() {}
