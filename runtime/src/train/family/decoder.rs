//! Sizes of a new decoder with rotary positions and gated feed-forwards, such as a Llama.

use crate::rotary::{RopeParameters, RopeScaling};

/// Returns the width of a gated feed-forward beside a stream of `hidden` elements.
pub(super) fn default_ffn(hidden: usize) -> usize {
    // 8/3 of the width gives a gated feed-forward the size of a plain one of 4 (GLU Variants Improve
    // Transformer, arXiv 2002.05202, section 3).
    (8 * hidden / 3).next_multiple_of(64)
}

/// Raises `max_position_embeddings` to `seq`, with a warning, unless frequencies depend on it.
pub(super) fn extend_positions(
    max_positions: &mut usize,
    rope: &RopeParameters,
    seq: usize,
) -> Option<String> {
    if seq <= *max_positions || matches!(rope.scaling, RopeScaling::Dynamic { .. }) {
        return None;
    }
    let made_for = std::mem::replace(max_positions, seq);
    Some(format!(
        "{seq} tokens are more than the {made_for} positions for which the model was made (max_position_embeddings); \
         --export-hf writes {seq}"
    ))
}

/// Returns the width of a head.
///
/// # Errors
/// An odd width, in a message that begins with the flag.
pub(super) fn head_width(hidden: usize, heads: usize) -> Result<usize, String> {
    let width = hidden / heads;
    if !width.is_multiple_of(2) {
        return Err(format!(
            "--heads: {heads} makes heads {width} wide; rotary positions need an even width"
        ));
    }
    Ok(width)
}
