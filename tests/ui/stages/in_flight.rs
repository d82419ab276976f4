//! A collective in flight between two stages.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Front {}

#[forward]
impl Front {
    fn forward(&self, x: &Stream) -> InFlight<Tensor<(Batch, Seq, Hidden)>> {
        x.start_gather(Seq)
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    front: Front,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> InFlight<Tensor<(Batch, Seq, Hidden)>>;
}

fn main() {}
