//! A quotient of tensors that are split differently, in a closure and through an alias.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Whole = Tensor<(Batch, Seq, Hidden)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Normalize {
    #[sharded(tp = "col")]
    scale: Param<(Hidden,)>,
}

#[forward]
impl Normalize {
    fn forward(&self, x: &Whole) -> Whole {
        x / &self.scale
    }
}

fn ratio(x: &Stream, y: &Whole) -> Stream {
    let over = |y: &Whole| x / y;
    over(y)
}

fn main() {}
