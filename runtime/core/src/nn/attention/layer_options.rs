//! The settings of one attention, selected from the settings of its model.

use super::super::Builder;
use super::options::AttentionOptions;

/// The settings of one attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerOptions {
    pub(super) window: Option<usize>,
    pub(super) soft_cap: Option<f32>,
    pub(super) scale: Option<f32>,
    /// Dropout rate of weights.
    pub(super) dropout: f32,
}

impl LayerOptions {
    /// Selects the settings of the attention that `builder` builds. Impossible ones are problems of the model.
    pub(super) fn from_builder(builder: &Builder<'_>) -> LayerOptions {
        let AttentionOptions { windows, soft_cap, scale, dropout, max_distance } =
            builder.attention_options();
        let of_model = builder.sizes().attention.max_distance;
        if ![of_model, AttentionOptions::default().max_distance].contains(max_distance) {
            builder.problem(format_args!(
                "a maximum distance of {max_distance} applies to nothing: it is that of a `RelativeBias`, whose own \
                 field `Sizes::with_attention` takes"
            ));
        }
        for window in windows.iter().flatten().filter(|window| **window == 0) {
            builder.problem(format_args!(
                "a window of {window} positions shows a query no key: a window of 1 is its own position"
            ));
        }
        for (name, number) in [("soft cap", soft_cap), ("scale", scale)] {
            if let Some(number) = number.filter(|number| !(number.is_finite() && *number > 0.0)) {
                builder.problem(format_args!(
                    "the {name} of its scores is {number}, but must be positive and finite; `None` leaves the scores \
                     as they are"
                ));
            }
        }
        if !(0.0..1.0).contains(dropout) {
            builder
                .problem(format_args!("the dropout rate {dropout} of its weights is not in 0..1"));
        }
        let window = match windows.as_slice() {
            [] => None,
            [window] => *window,
            windows => {
                let layer = builder.layer_index();
                if layer.is_none() {
                    builder.problem(format_args!(
                        "the sizes have {} windows for the layers of a stack, but this attention is not in a `Stack`; \
                         set one window, or others for this field by `Sizes::with_attention`",
                        windows.len()
                    ));
                }
                windows[layer.unwrap_or_default() % windows.len()]
            }
        };
        LayerOptions { window, soft_cap: *soft_cap, scale: *scale, dropout: *dropout }
    }
}
