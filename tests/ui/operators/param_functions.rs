//! Numbers before parameters, and functions of parameters alone.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Scale {
    gain: Param<(Hidden,)>,
    #[sharded(tp = "col")]
    up: Param<(Hidden, Ffn)>,
}

#[forward]
impl Scale {
    fn forward(&self, x: &Stream) -> Stream {
        x * (1.0 / &self.gain)
    }

    fn root(&self, x: &Stream) -> Stream {
        x * self.gain.sqrt()
    }

    fn bounded(&self, x: &Stream) -> Stream {
        x * self.gain.clamp(0.0, 1.0)
    }

    fn scaled(&self, x: &Stream, factor: f32) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
        x.contract(&(factor * &self.up))
    }
}

fn main() {}
