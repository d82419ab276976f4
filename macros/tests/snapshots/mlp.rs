use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};

dims! {
    Batch @ data,
    Seq @ cp,
    /// Width of the residual stream.
    Hidden,
    pub(crate) Ffn,
}

#[model]
#[derive(Default)]
pub struct NoParameters {}

#[model]
/// The feed-forward part of a block.
pub struct Mlp {
    /// Up.
    #[sharded(tp = "col")]
    pub gate: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    pub fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        if self.is_linear() {
            return self.down.forward(&self.up.forward(x));
        }
        let _gate = self.gate.forward(x);
        self.down.forward(&self.up.forward(x).silu())
    }

    fn is_linear(&self) -> bool {
        false
    }
}
