//! A language model with heads of several options, for losses of every kind.

use meshwright::nn::Sizes;
use meshwright::prelude::*;
use meshwright::tensor::Weights;

dims! {
    /// Samples.
    pub Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    pub Seq @ cp,
    /// Features of a token.
    pub Hidden,
    /// Token ids.
    pub Vocab,
}

/// Tokens or targets of the model.
pub type Ids = Tokens<(Batch, Seq)>;

/// The model.
#[model]
pub struct ManyHeads {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    gain: Param<(Hidden,)>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
    #[sharded(tp = "vocab")]
    teacher: LmHead<Hidden, Vocab>,
    #[sharded(tp = "vocab")]
    loss: CrossEntropy<Vocab>,
}

impl ManyHeads {
    /// Returns sizes with every option of heads.
    pub fn sizes(vocab: usize) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, 12)
            .with(Vocab, vocab)
            .with_optional("head.bias", true)
            .with_head("teacher", HeadOptions { soft_cap: Some(4.0), ..HeadOptions::default() });
        sizes.init_std = 0.5;
        sizes.head = HeadOptions {
            soft_cap: Some(3.0),
            label_smoothing: 0.1,
            z_loss: 0.01,
            f32_logits: false,
        };
        sizes
    }

    fn stream(&self, tokens: &Ids) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        (self.embed.forward(tokens) * &self.gain).tanh() * 2.0
    }

    /// The fused loss of the head.
    pub fn fused(&self, tokens: &Ids, targets: &Ids) -> Loss<(Batch, Seq)> {
        self.head.loss(&self.stream(tokens), targets)
    }

    /// The cross-entropy of the logits.
    pub fn apart(&self, tokens: &Ids, targets: &Ids) -> Loss<(Batch, Seq)> {
        self.loss.forward(&self.head.logits(&self.stream(tokens)), targets)
    }

    /// Log-probabilities with weights that differ by row and position, many of them 0.
    pub fn weighted(&self, tokens: &Ids, targets: &Ids) -> Loss<(Batch, Seq)> {
        let log_probs = self.head.log_probs(&self.stream(tokens), targets);
        let weight = |at: &[usize]| ((at[0] * 5 + at[1] * 3) % 7) as f32 * at[0] as f32 / 4.0;
        let weights: Weights<(Batch, Seq)> =
            Weights::from_fn(tokens.rank(), &tokens.sizes(), weight);
        Loss::weighted_mean(&-log_probs, &weights)
    }

    /// The divergence from the teacher.
    pub fn distilled(&self, tokens: &Ids) -> Loss<(Batch, Seq)> {
        let x = self.stream(tokens);
        Loss::mean_of(&self.head.kl(&x, &self.teacher, &x.tanh(), 2.0))
    }
}
