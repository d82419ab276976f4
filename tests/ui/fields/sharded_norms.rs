//! A style on optional and repeated layers without such a form.

use meshwright::prelude::*;

dims! { Hidden, Ffn }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    norm: Option<RmsNorm<Hidden>>,
    #[sharded(tp = "row")]
    biases: [Bias<Ffn>; 2],
    up: Linear<Hidden, Ffn>,
}

fn main() {}
