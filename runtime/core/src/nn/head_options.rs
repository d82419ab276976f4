//! Options of language-model heads and cross-entropies.

/// Options of an [`LmHead`](super::layers::LmHead), and of a [`CrossEntropy`](super::layers::CrossEntropy):
/// [`Sizes::head`](super::Sizes::head), or for single fields [`Sizes::with_head`](super::Sizes::with_head).
///
/// The loss of a token is `(1 - e) (lse - z[t]) + e (lse - mean(z))`, with its logits `z` over the vocabulary, `lse =
/// log(sum(exp(z)))` and the target `t`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HeadOptions {
    /// Limits the logits to `-c..c`: `z = c tanh(y / c)` of the products `y`, the final logit softcapping of
    /// [Gemma 2](https://arxiv.org/abs/2408.00118), section 2. Of a head only: a cross-entropy takes the logits as they
    /// are, and those of [`LmHead::logits`](super::layers::LmHead::logits) have the cap.
    pub soft_cap: Option<f32>,
    /// The part `e` of the target's probability that is distributed evenly over the vocabulary, at least 0 and below 1:
    /// label smoothing ([Szegedy et al. 2015](https://arxiv.org/abs/1512.00567), section 7), as that of PyTorch's
    /// `cross_entropy`.
    pub label_smoothing: f32,
    /// Factor `k` of the z-loss `k lse^2` of each token, 0 for none: 1e-4 in
    /// [PaLM](https://arxiv.org/abs/2204.02311), section 5. It is differentiated and not reported, as penalties are.
    pub z_loss: f32,
    /// Computes logits, loss and probabilities in f32 in a bf16 run, from weights and activations in bf16. The logits
    /// of a chunk take three times the memory in training. Of a head only, and not of the tensor that
    /// [`LmHead::logits`](super::layers::LmHead::logits) returns.
    pub f32_logits: bool,
}

impl HeadOptions {
    /// Returns the options without those of the loss.
    pub(super) fn without_loss(self) -> HeadOptions {
        HeadOptions { label_smoothing: 0.0, z_loss: 0.0, ..self }
    }

    /// Returns the options of a loss whose logits are given.
    pub(super) fn of_given_logits(self) -> HeadOptions {
        HeadOptions { soft_cap: None, f32_logits: false, ..self }
    }

    /// Returns true if the gradient of the logits is that of a plain cross-entropy.
    pub(super) fn has_plain_gradient(&self) -> bool {
        self.soft_cap.is_none() && self.label_smoothing == 0.0 && self.z_loss == 0.0
    }

    /// Returns the problem of options that are out of range.
    pub(super) fn problem(&self) -> Option<String> {
        let HeadOptions { soft_cap, label_smoothing, z_loss, .. } = *self;
        if let Some(cap) = soft_cap.filter(|cap| !(cap.is_finite() && *cap > 0.0)) {
            return Some(format!("`soft_cap` is {cap}, and must be a finite number above 0"));
        }
        if !(0.0..1.0).contains(&label_smoothing) {
            return Some(format!(
                "`label_smoothing` is {label_smoothing}, and must be at least 0 and below 1"
            ));
        }
        let is_valid = z_loss.is_finite() && z_loss >= 0.0;
        (!is_valid)
            .then(|| format!("`z_loss` is {z_loss}, and must be a finite number of at least 0"))
    }
}
