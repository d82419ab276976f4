//! `#[frozen]` freezes all parameters of a field, not those of a list.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

#[model]
struct Net {
    #[frozen(weight)]
    norm: LayerNorm<Hidden>,
    #[frozen = true]
    out: Linear<Hidden, Hidden>,
}

fn main() {}
