//! A model of which every number passes through reductions along whole, split and distributed dims.

use meshwright::nn::Sizes;
use meshwright::prelude::*;

dims! {
    /// Samples.
    pub Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    pub Seq @ cp,
    /// Features of a token.
    pub Hidden,
    /// Features that `tp` splits.
    pub Ffn,
    /// Token ids.
    pub Vocab,
}

/// A number for each sample.
pub type PerSample = Tensor<(Batch,)>;

/// Reductions along features, split over `tp`.
#[model]
pub struct AcrossFeatures {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
}

#[forward]
impl AcrossFeatures {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> PerSample {
        let x = self.up.forward(x);
        let across = x.across();
        let reduced = across.max(Ffn) - across.min(Ffn) * 0.5 + across.var(Ffn);
        let reduced = reduced + across.norm(Ffn) * across.log_sum_exp(Ffn);
        let softmax = across.softmax_over(Ffn) * x.tanh() + across.log_softmax_over(Ffn) * 0.1;
        (reduced + softmax.sum(Ffn).all_reduce()).mean(Seq).all_reduce()
    }
}

/// Reductions along positions, distributed over `cp`, and split over `tp` too.
#[model]
pub struct AcrossPositions {
    gain: Param<(Hidden,)>,
}

#[forward]
impl AcrossPositions {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> PerSample {
        let x = x * &self.gain;
        let across = x.across();
        let reduced = across.max(Seq) - across.min(Seq) * 0.5 + across.var(Seq);
        let reduced = reduced + across.norm(Seq) * across.log_sum_exp(Seq);
        let softmax = across.softmax_over(Seq) * x.tanh() + across.log_softmax_over(Seq) * 0.1;
        let split = x.slice(Seq, Tp);
        let split = split.across().max(Seq) + split.across().log_sum_exp(Seq);
        (reduced + softmax.sum(Seq).all_reduce() + split).mean(Hidden)
    }
}

/// Reductions along features that each rank holds whole.
#[model]
pub struct OfFeatures {
    linear: Linear<Hidden, Hidden>,
}

#[forward]
impl OfFeatures {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> PerSample {
        let x = self.linear.forward(x);
        let reduced = x.max(Hidden) - x.min(Hidden) * 0.5 + x.var(Hidden);
        let reduced = reduced + x.norm(Hidden) * x.log_sum_exp(Hidden);
        let softmax = x.softmax_over(Hidden) * x.tanh() + x.log_softmax() * 0.1;
        softmax.sum((Seq, Hidden)).all_reduce() + reduced.mean(Seq).all_reduce()
    }
}

/// The model.
#[model]
pub struct Reductions {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    features: AcrossFeatures,
    positions: AcrossPositions,
    #[recompute]
    recomputed: AcrossFeatures,
    #[recompute]
    recomputed_positions: AcrossPositions,
    #[recompute]
    whole: OfFeatures,
}

impl Reductions {
    /// Returns the sizes.
    pub fn sizes(vocab: usize) -> Sizes {
        let mut sizes = Sizes::new().with(Hidden, 12).with(Ffn, 20).with(Vocab, vocab);
        sizes.init_std = 0.5;
        sizes
    }

    /// Computes a loss of one term for each sample.
    pub fn loss(&self, tokens: &Tokens<(Batch, Seq)>) -> Loss<(Batch,)> {
        let x = self.embed.forward(tokens);
        let terms = self.features.forward(&x) + self.positions.forward(&x);
        let recomputed = self.recomputed.forward(&x) + self.recomputed_positions.forward(&x);
        Loss::mean_of(&(terms + recomputed + self.whole.forward(&x)))
    }
}
