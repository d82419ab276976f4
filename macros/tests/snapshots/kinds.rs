use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
pub struct Narrow {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Narrow {
    fn forward(&self, x: &Stream) -> Stream {
        self.norm.forward(x)
    }
}

#[model]
pub struct Wide {
    norm: RmsNorm<Hidden>,
    other: RmsNorm<Hidden>,
}

#[forward]
impl Wide {
    fn forward(&self, x: &Stream) -> Stream {
        self.other.forward(&self.norm.forward(x))
    }
}

/// A layer of a stack of both.
#[model]
pub enum Block {
    Narrow(Narrow),
    Wide(Wide),
}
