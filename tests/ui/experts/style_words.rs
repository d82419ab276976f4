//! Styles of one axis at another, and values that are no styles.

use meshwright::prelude::*;

dims! { Seq, Hidden, Experts }

#[model]
struct Net {
    #[sharded(tp = "experts")]
    over_tp: GroupedLinear<Experts, Hidden, Hidden>,
    #[sharded(ep = "col")]
    columns: Linear<Hidden, Hidden>,
    #[sharded(ep = ["experts"])]
    list: GroupedLinear<Experts, Hidden, Hidden>,
    #[sharded(cp = [ring])]
    ring: Attention<Hidden, Hidden, Seq>,
    #[sharded(ep = "experts", scatter = Seq)]
    scattered: GroupedLinear<Experts, Hidden, Hidden>,
    #[sharded()]
    nothing: GroupedLinear<Experts, Hidden, Hidden>,
}

fn main() {}
