//! Tensors that are repeated along dims of others: adaLN, FiLM, gates of tokens, scales of heads, a learned
//! temperature, masks by values and by positions; with a sequence that is distributed over cp and split over tp.

use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Residual stream.
    Hidden,
    /// Heads.
    Heads,
    /// Elements of one head.
    HeadDim,
    /// Positions that are weighed.
    Keys,
    /// Token ids.
    Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// The condition that modulates a sample.
pub type Condition = Tensor<(Batch, Hidden)>;

/// Layers that are modulated by the sample, the token, the head, and by a number.
#[model]
pub struct Modulated {
    norm: LayerNorm<Hidden>,
    scale: Linear<Hidden, Hidden>,
    scale_bias: Bias<Hidden>,
    shift: Linear<Hidden, Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    head_scale: Param<(Heads,)>,
    width_scale: Param<(HeadDim,)>,
    temperature: Param<()>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<(Heads, HeadDim), Hidden>,
    gate: Param<(Hidden,)>,
    floor: Param<(Hidden,)>,
}

#[forward]
impl Modulated {
    fn forward(&self, (x, condition): &(Stream, Condition)) -> (Stream, Condition) {
        let scale = self.scaled(condition);
        let modulated = self.norm.forward(x) * (scale + 1.0) + self.shift.forward(condition);
        let heads = self.up.forward(&modulated).tanh();
        let temperature = (self.temperature.tensor() * 0.25).exp();
        let tokens = x.gather(Seq).mean(Hidden).sigmoid();
        let scaled = &heads * &self.head_scale.tensor() * &temperature * &tokens;
        let of_heads = &self.head_scale.tensor() * 0.5 * mean_square(&heads);
        let y = self.down.forward(&(scaled + self.width_scale.tensor().sin() - of_heads));
        let gate = (x * &self.gate).mean(Hidden).sigmoid();
        let y = x + y.maximum(&(self.floor.tensor() * -0.3)).minimum(1.5) * gate;
        (y, condition.clone())
    }
}

impl Modulated {
    /// Returns the scale of a sample.
    pub fn scaled(&self, condition: &Condition) -> Condition {
        self.scale_bias.forward(&self.scale.forward(condition))
    }
}

fn mean_square(
    heads: &Tensor<(Batch, Seq, Split<Heads, Tp>, HeadDim)>,
) -> Tensor<(Batch, Seq, Split<Heads, Tp>)> {
    heads.square().mean(HeadDim)
}

/// Weights of positions, with masks by position and by value.
#[model]
pub struct Weighed {
    scores: Linear<Hidden, Keys>,
    bias: Param<(Keys,)>,
    values: Param<(Keys, Hidden)>,
}

impl Weighed {
    fn weigh(&self, x: &Stream) -> Stream {
        let scores = self.scores.forward(x) * 0.7 + &self.bias;
        let visible =
            Mask::causal(Seq, Keys) & (Mask::window(Seq, Keys, 3) | !Mask::causal(Seq, Keys));
        let weights = scores.masked(&visible, f32::NEG_INFINITY).softmax();
        let mixed = weights.masked(&!weights.lt(0.05), 0.0).contract(&self.values);
        let over = &mixed - &x.mean(Hidden);
        let large = over.gt(0.1) & !x.ge(2.0);
        // The root of a negative number is not chosen, and must not reach the gradient.
        large.choose(&over.sqrt(), &(x * 0.5 + &mixed)) + x
    }
}

/// The model.
#[model]
pub struct Conditioned {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    /// Modulated twice.
    pub first: Modulated,
    weighed: Weighed,
    #[recompute]
    second: Modulated,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
    #[sharded(tp = "vocab")]
    loss: CrossEntropy<Vocab>,
    logit_scale: Param<()>,
}

impl Conditioned {
    /// Computes the cross-entropy of logits with a learned scale, plus a penalty of the weights.
    pub fn loss(
        &self,
        tokens: &Tokens<(Batch, Seq)>,
        targets: &Targets<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)> {
        let x = self.embed.forward(tokens);
        let pooled = x.gather(Seq).mean(Seq).all_reduce().silu();
        let (x, pooled) = self.first.forward(&(x, pooled));
        let x = self.weighed.weigh(&x);
        let (x, _) = self.second.forward(&(x, pooled));
        let logits = self.head.logits(&x);
        let scale = self.logit_scale.tensor().pow(1.5);
        self.loss.forward(&(logits * scale), targets)
    }
}
