//! A partial sum between two stages.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type Up = Tensor<(Batch, Seq, Split<Ffn, Tp>)>;

#[model]
struct Front {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

#[forward]
impl Front {
    fn forward(&self, x: &Up) -> Partial<(Batch, Seq, Hidden), Tp> {
        x.contract(&self.weight)
    }
}

#[model]
struct Back {}

#[forward]
impl Back {
    fn forward(&self, _: &Partial<(Batch, Seq, Hidden), Tp>) -> Tensor<(Batch, Seq, Hidden)> {
        unreachable!()
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    front: Front,
    #[pipeline_stage]
    back: Back,
}

#[forward]
impl Net {
    fn forward(&self, x: &Up) -> Tensor<(Batch, Seq, Hidden)>;
}

fn main() {}
