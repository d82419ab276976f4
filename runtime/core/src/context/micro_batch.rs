//! The rows of the batch that a micro-batch holds.

use std::any::TypeId;
use std::cell::OnceCell;
use std::rc::Rc;

use crate::layout::{AxisSet, DimInfo};
use meshwright_mesh::Extent;

/// The rows of the batch that a micro-batch holds on this rank.
///
/// The [`Rank`](super::Rank) of a tensor that is computed from a micro-batch refers to it, so new tensors made on that
/// rank have the same rows.
pub(crate) struct MicroBatch {
    key: TypeId,
    extent: Extent,
    /// The axes over which the rows are distributed.
    axes: AxisSet,
    /// Rows on all ranks.
    global_rows: OnceCell<usize>,
}

impl MicroBatch {
    /// Creates the micro-batch of the rows `extent` of dim `info`.
    pub(crate) fn new(info: &DimInfo, extent: Extent) -> Rc<MicroBatch> {
        let (key, axes) = ((info.key)(), info.home);
        Rc::new(MicroBatch { key, extent, axes, global_rows: OnceCell::new() })
    }

    /// Returns the rows on this rank if `info`, of `size` elements, is the dim of the batch.
    pub(super) fn rows_of(&self, info: &DimInfo, size: usize) -> Option<Extent> {
        (self.key == (info.key)() && self.extent.global == size).then_some(self.extent)
    }

    /// Returns true if `info` is distributed over the axes of the rows.
    pub(super) fn is_distributed_as(&self, info: &DimInfo) -> bool {
        !info.home.is_empty() && self.axes == info.home
    }

    /// Checks that two operands of one operation are computed from the same rows.
    ///
    /// # Panics
    /// If they are not.
    #[track_caller]
    pub(super) fn check_same(&self, other: &MicroBatch) {
        assert!(
            self.key != other.key || self.extent == other.extent,
            "an auxiliary loss is attached to a tensor of another micro-batch than the one that its terms are computed \
             from: each micro-batch has a backward of its own, so attach the terms to a tensor of their forward pass"
        );
    }

    /// Returns the number of rows on all ranks, which `sum_over_axes` computes on the first call from the axes of the
    /// dim and the rows of this rank.
    pub(super) fn global_rows(&self, sum_over_axes: impl FnOnce(AxisSet, usize) -> usize) -> usize {
        *self.global_rows.get_or_init(|| sum_over_axes(self.axes, self.extent.local))
    }
}
