//! A partial sum in a tuple between two stages.

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
    fn forward(&self, x: &Up) -> (Partial<(Batch, Seq, Hidden), Tp>, Up) {
        (x.contract(&self.weight), x.clone())
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    front: Front,
}

#[forward]
impl Net {
    fn forward(&self, x: &Up) -> (Partial<(Batch, Seq, Hidden), Tp>, Up);
}

fn main() {}
