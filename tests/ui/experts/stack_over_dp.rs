//! Stacked weights over the data axes `dp` and `fsdp`, whose ranks have the same parameters.

use meshwright::layout::Stacked;
use meshwright::nn::{Build, Builder, ByExpert};
use meshwright::prelude::*;

dims! { Experts, Hidden, Ffn }

#[model]
struct Net {
    weight: Param<Stacked<Split<Experts, Dp>, Hidden, Ffn>>,
}

type Weight<A> = Stacked<Split<Experts, A>, Hidden, Ffn>;

#[model]
struct Aliased {
    weight: Param<Weight<(Fsdp, Ep)>>,
}

struct Layer(GroupedLinear<Experts, Hidden, Ffn, ByExpert<Dp>>);

impl Build for Layer {
    fn build(builder: &mut Builder<'_>) -> Self {
        Layer(Build::build(&mut builder.field("experts")))
    }
}

fn main() {}
