//! Pictures of a schedule: a row per rank over time.

mod svg;
mod text;

pub use svg::draw_svg;
pub use text::draw_text;

use super::{Compute, Work};

/// The text in the box of a computation: its micro-batch, with the stage if ranks have several.
fn action_label(compute: Compute, has_chunks: bool) -> String {
    let Compute { work, stage, micro_batch } = compute;
    if has_chunks {
        format!("{}{stage}.{micro_batch}", work.letter())
    } else {
        format!("{}{micro_batch}", work.letter())
    }
}

/// Kinds of computation in the order of a legend.
const WORKS: [(Work, &str); 4] = [
    (Work::Forward, "F: forward"),
    (Work::Backward, "B: backward"),
    (Work::BackwardInput, "I: backward for the input"),
    (Work::BackwardWeight, "W: backward for weights"),
];
