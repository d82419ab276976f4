//! The parameter of an own layer, generic in its dims.

use meshwright::layout::Shape;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

struct Glu<I, O> {
    gate: Param<(I, O)>,
}

impl<I, O> Build for Glu<I, O>
where
    (I, O): Shape,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Glu { gate: builder.param("gate", Init::Zeros) }
    }
}

#[model]
struct Mlp {
    glu: Glu<Split<Hidden, Tp>, Split<Ffn, Tp>>,
}

fn main() {}
