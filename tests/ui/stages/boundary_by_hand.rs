//! Boundaries of library types, implemented in another crate.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

struct Mine;

impl meshwright::nn::StageBoundary for Partial<(Batch, Seq, Hidden), Tp> {}

impl meshwright::nn::StageInput<Stream> for Tensor<(Batch, Seq, Hidden)> {}

impl meshwright::nn::StageOutput<Mine> for Stream {
    fn stage_output<V: meshwright::nn::StageVisitor>(
        output: meshwright::nn::StageValue<V, Self>,
    ) -> meshwright::nn::StageValue<V, Mine> {
        output
    }
}

fn main() {}
