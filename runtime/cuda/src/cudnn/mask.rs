//! The mask of a band, as operations on scores.

use super::attention_sizes::BandMask;
use super::graph::{GraphBuilder, GraphScalar, Pointwise, TensorId};

/// The scalars of a mask: for each limit the score of the pairs that it masks, and its distance if that is not zero.
pub(super) struct MaskScalars {
    right: Option<(TensorId, Option<TensorId>)>,
    left: Option<(TensorId, TensorId)>,
}

impl MaskScalars {
    /// Adds the scalars of a mask to a graph.
    pub fn new(g: &mut GraphBuilder, mask: BandMask) -> MaskScalars {
        let right = mask.right.map(|right| {
            let masked = g.scalar(GraphScalar::Masked);
            (masked, (right != 0).then(|| g.scalar(GraphScalar::RightBound)))
        });
        let left =
            mask.left.map(|_| (g.scalar(GraphScalar::Masked), g.scalar(GraphScalar::LeftBound)));
        MaskScalars { right, left }
    }
}

/// Returns the scores, and `masked` beyond the limits of a mask.
///
/// The library recognizes the mask by these operations: a comparison and a selection for each limit, the right one
/// first.
pub(super) fn mask(g: &mut GraphBuilder, scores: TensorId, limits: MaskScalars) -> TensorId {
    let mut scores = scores;
    if let Some((masked, shift)) = limits.right {
        let (row, col) = (g.index(scores, 2), g.index(scores, 3));
        let row = shift.map_or(row, |shift| g.add_to_index(row, shift));
        let sees = g.compare(Pointwise::AtLeast, row, col);
        scores = g.select(scores, masked, sees);
    }
    if let Some((masked, shift)) = limits.left {
        let (row, col) = (g.index(scores, 2), g.index(scores, 3));
        let col = g.score_op(Pointwise::Add, col, shift);
        let sees = g.compare(Pointwise::Above, col, row);
        scores = g.select(scores, masked, sees);
    }
    scores
}
