//! Settings of attention that are numbers: windows, soft caps, scales.

use super::super::Builder;

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
    /// Distance from which on all distances have one bucket of a [`RelativeBias`](crate::nn::RelativeBias).
    pub max_distance: usize,
}

impl Default for AttentionOptions {
    /// No windows, no cap, the usual scale, and buckets up to a distance of 128, as in T5.
    fn default() -> AttentionOptions {
        AttentionOptions { windows: Vec::new(), soft_cap: None, scale: None, max_distance: 128 }
    }
}

/// The settings of one attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerOptions {
    pub(super) window: Option<usize>,
    pub(super) soft_cap: Option<f32>,
    pub(super) scale: Option<f32>,
}

impl LayerOptions {
    /// Selects the settings of the attention that `builder` builds. Impossible ones are problems of the model.
    pub(super) fn of(builder: &Builder<'_>) -> LayerOptions {
        let AttentionOptions { windows, soft_cap, scale, .. } = builder.attention_options();
        for window in windows.iter().flatten().filter(|window| **window == 0) {
            builder.problem(format_args!(
                "a window of {window} positions shows a query no key: a window of 1 is its own position"
            ));
        }
        for (name, number) in [("soft cap", soft_cap), ("scale", scale)] {
            if let Some(number) = number.filter(|number| !(number.is_finite() && *number > 0.0)) {
                builder.problem(format_args!(
                    "the {name} of its scores is {number}, but must be positive and finite; `None` leaves the scores as they are"
                ));
            }
        }
        let window = match windows.as_slice() {
            [] => None,
            [window] => *window,
            windows => {
                let layer = builder.layer_index();
                if layer.is_none() {
                    builder.problem(format_args!(
                        "the sizes have {} windows for the layers of a stack, but this attention is in no `Stack`; give one \
                         window, or others for this field by `Sizes::with_attention`",
                        windows.len()
                    ));
                }
                windows[layer.unwrap_or_default() % windows.len()]
            }
        };
        LayerOptions { window, soft_cap: *soft_cap, scale: *scale }
    }
}
