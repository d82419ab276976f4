//! Mixtures of experts with biases and a clamped gate.

use meshwright::prelude::*;

use super::dims::{Batch, Experts, Ffn, GateUp, Hidden, Seq, Stream, TopK};

/// The tokens at the experts that they have chosen.
pub type ExpertTokens =
    Tensor<(Routed<(Batch, Split<Seq, Tp>), Split<Experts, (Ep, Cp, Tp)>>, Hidden)>;

/// Constants of the gate, from the numbers `swiglu_alpha` and `swiglu_limit` of the sizes.
#[derive(Debug, Clone, Copy)]
pub struct GateOptions {
    /// Factor inside of the sigmoid.
    alpha: f32,
    /// Largest gate, and largest absolute value of the up-projection.
    limit: f32,
}

impl Build for GateOptions {
    fn build(builder: &mut Builder<'_>) -> Self {
        let number = |name, published| builder.sizes().number(name).unwrap_or(published);
        GateOptions { alpha: number("swiglu_alpha", 1.702), limit: number("swiglu_limit", 7.0) }
    }
}

/// The MLPs of the experts. An element of the hidden layer is `(up + 1) gate sigmoid(alpha gate)`, with `gate` at most
/// the limit and `up` within it.
#[model]
pub struct ExpertMlps {
    #[sharded(ep = "experts", fold = [cp, tp])]
    gate_up: GroupedLinear<Experts, Hidden, (Ffn, GateUp)>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    gate_up_bias: GroupedBias<Experts, (Ffn, GateUp)>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    down: GroupedLinear<Experts, Ffn, Hidden>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    down_bias: GroupedBias<Experts, Hidden>,
    options: GateOptions,
}

#[forward]
impl ExpertMlps {
    /// Returns the outputs of the experts.
    pub fn forward(&self, x: &ExpertTokens) -> ExpertTokens {
        let GateOptions { alpha, limit } = self.options;
        let gate_up = self.gate_up_bias.forward(&self.gate_up.forward(x));
        let gate = gate_up.select(GateUp, 0).clamp(f32::NEG_INFINITY, limit);
        let up = gate_up.select(GateUp, 1).clamp(-limit, limit);
        let gated = &gate * (&gate * alpha).sigmoid();
        self.down_bias.forward(&self.down.forward(&((up + 1.0) * gated)))
    }
}

/// Mixture of experts.
#[model]
pub struct Mixture {
    router: Router<Hidden, Experts, TopK>,
    experts: ExpertMlps,
}

#[forward]
impl Mixture {
    /// Returns the stream that the mixture adds, with the auxiliary loss of its router.
    pub fn forward(&self, x: &Stream) -> Stream {
        let routing = self.router.forward(x);
        let rows = routing.dispatch(x, (Ep, Cp, Tp));
        let mixed = routing.combine(&self.experts.forward(&rows));
        mixed.with_auxiliary_loss(&routing.auxiliary_loss())
    }
}
