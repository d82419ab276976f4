//! A layer defined by the user that was not made shardable.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    gain: Gain,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.norm.forward(x)
    }
}

struct Gain {
    weight: Param<(Hidden,)>,
}

impl Build for Gain {
    fn build(builder: &mut Builder<'_>) -> Self {
        Gain { weight: builder.param("weight", Init::Ones) }
    }
}

fn main() {}
