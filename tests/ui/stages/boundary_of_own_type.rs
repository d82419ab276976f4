//! A user-defined type between two stages.

use meshwright::nn::StageBoundary;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[derive(Clone)]
struct Mine(Stream);

impl StageBoundary for Mine {}

#[model]
struct Front {}

#[forward]
impl Front {
    fn forward(&self, x: &Stream) -> Mine {
        Mine(x.clone())
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    front: Front,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Mine;
}

fn main() {}
