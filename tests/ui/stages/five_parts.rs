//! A tuple of five tensors between two stages.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Front {}

#[forward]
impl Front {
    fn forward(&self, x: &Stream) -> (Stream, Stream, Stream, Stream, Stream) {
        (x.clone(), x.clone(), x.clone(), x.clone(), x.clone())
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    front: Front,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> (Stream, Stream, Stream, Stream, Stream);
}

fn main() {}
