//! A user-defined layer as a stage, outside of a model.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

struct Bare;

impl Build for Bare {
    fn build(_: &mut Builder<'_>) -> Self {
        Bare
    }
}

impl Layer<Stream> for Bare {
    type Out = Stream;

    fn forward(&self, x: &Stream) -> Stream {
        x.clone()
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    bare: Bare,
}

#[forward]
impl Net {
    fn forward(&self, x: &Ids) -> Stream;
}

fn main() {}
