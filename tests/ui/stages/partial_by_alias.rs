//! A partial sum behind an alias, as the output of the model.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type Up = Tensor<(Batch, Seq, Split<Ffn, Tp>)>;
type Sum = Partial<(Batch, Seq, Hidden), Tp>;

#[model]
struct Front {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

#[forward]
impl Front {
    fn forward(&self, x: &Up) -> Sum {
        x.contract(&self.weight)
    }
}

type First = Front;

#[model]
struct Net {
    #[pipeline_stage]
    front: First,
}

#[forward]
impl Net {
    fn forward(&self, x: &Up) -> Sum;
}

fn main() {}
