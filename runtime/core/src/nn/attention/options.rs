//! Settings of attention that are numbers: windows, soft caps, scales.

/// Settings of the attentions of a model, a part of [`Sizes`](crate::nn::Sizes).
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionOptions {
    /// Sliding windows: an attention in layer `i` of a stack has window `windows[i % windows.len()]`, so
    /// `vec![Some(4096), None]` alternates between windows and full attention, and `vec![Some(4096)]` is one window for
    /// all. Empty: no windows.
    ///
    /// With a window of `w`, a query attends to the keys less than `w` positions from its own: the last `w` positions
    /// up to its own, if causal (Beltagy et al. 2020, "Longformer"; Jiang et al. 2023, "Mistral 7B").
    pub windows: Vec<Option<usize>>,
    /// Cap of scores: `cap * tanh(score / cap)` before the mask and the softmax (Gemma Team 2024, "Gemma 2").
    pub soft_cap: Option<f32>,
    /// Factor on scores; `None`: `1 / sqrt(D)` for heads of `D` elements.
    pub scale: Option<f32>,
    /// Dropout rate of weights after the softmax, in training; below 1. The rate of the model,
    /// [`Sizes::dropout`](crate::nn::Sizes::dropout), is that of [`Dropout`](crate::nn::Dropout) layers alone.
    ///
    /// The mask is a function of the seed, the step, the attention's path and the indices of row, head, query and key
    /// in the global tensors.
    pub dropout: f32,
    /// Distance from which on all distances have one bucket of a [`RelativeBias`](crate::nn::RelativeBias): an option
    /// of the field of the bias, which [`Sizes::with_attention`](crate::nn::Sizes::with_attention) refuses for the
    /// field of an attention.
    pub max_distance: usize,
}

impl Default for AttentionOptions {
    /// No windows, no cap, the usual scale, no dropout, and buckets up to a distance of 128, as in T5.
    fn default() -> AttentionOptions {
        AttentionOptions {
            windows: Vec::new(),
            soft_cap: None,
            scale: None,
            dropout: 0.0,
            max_distance: 128,
        }
    }
}
