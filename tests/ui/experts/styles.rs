//! Styles of layers that do not have them.

use meshwright::prelude::*;

dims! { Hidden, Ffn, Experts, TopK }

#[model]
struct Net {
    #[sharded(ep = "experts")]
    dense: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    columns: GroupedLinear<Experts, Hidden, Ffn>,
    #[sharded(ep = "experts")]
    router: Router<Hidden, Experts, TopK>,
}

fn main() {}
