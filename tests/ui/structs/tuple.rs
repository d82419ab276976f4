//! The fields of a model have names.

use meshwright::prelude::*;

dims! { Hidden, Ffn }

#[model]
struct Mlp(#[sharded(tp = "col")] Linear<Hidden, Ffn>, #[sharded(tp = "row")] Linear<Ffn, Hidden>);

fn main() {}
