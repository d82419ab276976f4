use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
pub struct Adapted {
    #[frozen]
    #[sharded(tp = "col")]
    base: Linear<Hidden, Ffn>,
    #[init(normal(0.01), bias = constant(-1.5))]
    norm: RmsNorm<Hidden>,
    #[shared]
    #[init(scaled)]
    table: RmsNorm<Hidden>,
}

#[forward]
impl Adapted {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
        self.base.forward(&self.table.forward(&self.norm.forward(x)))
    }
}
