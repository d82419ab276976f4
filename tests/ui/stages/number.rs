//! A number between two stages.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Front {}

#[forward]
impl Front {
    fn forward(&self, _: &Stream) -> f32 {
        1.0
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    front: Front,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> f32;
}

fn main() {}
