//! A branch that may be missing.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

struct Block {
    skip: Option<Stream>,
}

impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.skip.as_ref()
    }
}

fn last(x: &Stream, branches: Vec<Stream>) -> Stream {
    x + branches.into_iter().last()
}

fn main() {}
