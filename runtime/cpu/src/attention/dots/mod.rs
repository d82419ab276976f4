//! Tiles that are multiplied by bf16 dot products.

mod backward;
mod forward;

pub use backward::DotsBackward;
pub use forward::DotsForward;

use super::heads::Head;
use crate::dots::{PANEL, PanelLayout, pair_columns, pair_rows, transpose};
use crate::float::Float;

/// Returns a length padded to whole panels.
fn padded_len(len: usize) -> usize {
    len.next_multiple_of(PANEL)
}

/// Panels of pairs along the elements of a head, whose columns are the rows of the head: the right operand of
/// `queries * keys^T`. `rows` is scratch for `rows * dim / 2` pairs, and keeps the rows of the head.
fn panels_of_rows<T: Float>(head: &Head<T>, rows: &mut [u32], panels: &mut [u32]) {
    let source = head.source();
    let pairs = source.width / 2;
    let rows = &mut rows[..source.count * pairs];
    pair_columns(source, rows);
    transpose(rows, pairs, panels, PanelLayout { row: PANEL, panel: PANEL * pairs });
}

/// Panels of pairs along the rows of a head, whose columns are its elements: the right operand of `weights * values`.
/// Zeros beyond the last row, up to whole panels.
fn panels_of_columns<T: Float>(head: &Head<T>, panels: &mut [u32]) {
    let source = head.source();
    let stride = padded_len(source.count) / 2 * PANEL;
    for panel in panels.chunks_exact_mut(stride.max(1)) {
        panel[source.count.div_ceil(2) * PANEL..].fill(0);
    }
    pair_rows(source, panels, PanelLayout { row: PANEL, panel: stride });
}
