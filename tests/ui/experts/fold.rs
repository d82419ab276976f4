//! Mistakes in `fold`.

use meshwright::prelude::*;

dims! { Hidden, Ffn, Experts }

#[model]
struct Net {
    #[sharded(fold = [tp])]
    alone: GroupedLinear<Experts, Hidden, Ffn>,
    #[sharded(tp = "col", fold = [cp])]
    beside_tp: Linear<Hidden, Ffn>,
    #[sharded(ep = "experts", fold = [fsdp])]
    over_fsdp: GroupedLinear<Experts, Hidden, Ffn>,
    #[sharded(ep = "experts", fold = [tp, tp])]
    twice: GroupedLinear<Experts, Hidden, Ffn>,
    #[sharded(ep = "experts", fold = tp)]
    no_list: GroupedLinear<Experts, Hidden, Ffn>,
    #[sharded(ep = "expert")]
    misspelled: GroupedLinear<Experts, Hidden, Ffn>,
}

fn main() {}
