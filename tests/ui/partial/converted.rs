//! A partial sum that is converted to a tensor, instead of reduced.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

fn down(
    model: &Down,
    x: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>,
) -> Tensor<(Batch, Seq, Hidden)> {
    x.contract(&model.weight).into()
}

fn main() {
    let _ = down;
}
