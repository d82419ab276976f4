//! Five mismatched fields in otherwise correct models: five errors.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Model {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    second: Linear<Ffn, Hidden>,
    plain: Linear<Ffn, Hidden>,
    norm: RmsNorm<Ffn>,
    #[sharded(tp = "row")]
    own: Param<(Ffn, Hidden)>,
    bias: Param<(Hidden,)>,
}

#[forward]
impl Model {
    fn forward(&self, x: &Stream) -> Stream {
        let h = self.up.forward(x);
        let a = self.second.forward(&h);
        let b = self.plain.forward(&h);
        let c = self.norm.forward(&h);
        let d = h.contract(&self.own) + &self.bias;
        let e = h.contract(&self.own).silu();
        x.clone()
    }
}

fn main() {}
