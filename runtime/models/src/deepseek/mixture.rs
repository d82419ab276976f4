//! Feed-forwards: dense ones, and mixtures of experts beside experts that all tokens use.

use meshwright::prelude::*;

use super::dims::{Batch, ExpertFfn, Experts, Ffn, Hidden, Seq, SharedFfn, Stream, TopK};

/// The tokens at the experts that they have chosen.
pub type ExpertTokens =
    Tensor<(Routed<(Batch, Split<Seq, Tp>), Split<Experts, (Ep, Cp, Tp)>>, Hidden)>;

/// SwiGLU MLP.
#[model]
pub struct Mlp {
    #[sharded(tp = "col")]
    gate: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
    }
}

/// The SwiGLU MLPs of the experts.
#[model]
pub struct ExpertMlps {
    #[sharded(ep = "experts", fold = [cp, tp])]
    gate: GroupedLinear<Experts, Hidden, ExpertFfn>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    up: GroupedLinear<Experts, Hidden, ExpertFfn>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    down: GroupedLinear<Experts, ExpertFfn, Hidden>,
}

#[forward]
impl ExpertMlps {
    /// Returns the outputs of the experts.
    pub fn forward(&self, x: &ExpertTokens) -> ExpertTokens {
        self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
    }
}

/// The SwiGLU MLP that all tokens use.
#[model]
pub struct SharedMlp {
    #[sharded(tp = "col")]
    gate: Linear<Hidden, SharedFfn>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, SharedFfn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<SharedFfn, Hidden>,
}

#[forward]
impl SharedMlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
    }
}

/// Mixture of experts.
#[model]
pub struct Mixture {
    router: Router<Hidden, Experts, TopK>,
    experts: ExpertMlps,
    shared: SharedMlp,
}

#[forward]
impl Mixture {
    /// Returns the stream that the mixture adds, with the auxiliary loss of its router.
    pub fn forward(&self, x: &Stream) -> Stream {
        let routing = self.router.forward(x);
        let rows = routing.dispatch(x, (Ep, Cp, Tp));
        let mixed = routing.combine(&self.experts.forward(&rows));
        mixed.with_auxiliary_loss(&routing.auxiliary_loss()) + self.shared.forward(x)
    }
}
