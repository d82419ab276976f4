//! A stack of layers whose output is not their input.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Widen {}

#[forward]
impl Widen {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        x.slice(Seq, Tp)
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    blocks: Stack<Widen>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Stream;
}

fn main() {}
