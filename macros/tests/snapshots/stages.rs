use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};

dims! { Batch @ data, Seq, Hidden, Ffn }

pub type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
#[pipeline_stage]
pub struct Block {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Ffn)>) -> Tensor<(Batch, Seq, Ffn)> {
        x.split()
    }
}

#[model]
pub struct Net {
    #[pipeline_stage]
    up: Linear<Hidden, Ffn>,
    #[cfg(any())]
    #[pipeline_stage]
    missing: Nothing,
    #[pipeline_stage(cost = 1.5)]
    r#type: Block,
    #[pipeline_stage(cost = 2)]
    down: Linear<Ffn, Hidden>,
    #[pipeline_stage(last)]
    pub head: Linear<Hidden, Hidden>,
}

#[forward]
impl Net {
    /// Runs the stages.
    pub fn forward(&self, x: &Stream) -> Stream;
}
