//! Copies, casts and in-place arithmetic over whole operands.

use crate::{DryRunBackend, StridedCopy, View, ViewMut};

/// Kernels for copies, casts and in-place arithmetic.
pub trait CopyOps {
    /// Copies equally long runs of elements. Both operands have the same dtype.
    fn copy_blocks(&self, copy: &BlockCopy, src: View, dst: ViewMut);
    /// Copies a block of elements to another order of its dims. Both operands have the same dtype.
    fn copy_strided(&self, copy: &StridedCopy, src: View, dst: ViewMut);

    /// Computes `dst = src`, each f32 or bf16.
    fn cast(&self, src: View, dst: ViewMut);
    /// Computes `dst += src`, each f32 or bf16.
    fn add_assign(&self, dst: ViewMut, src: View);
    /// Computes `dst += weight * (src - dst)`, each f32 or bf16: an exponential moving average of `src`.
    fn lerp(&self, dst: ViewMut, src: View, weight: f32);
    /// Sets every element to `value`.
    fn fill(&self, dst: ViewMut, value: f32);
    /// Computes `dst *= factor`.
    fn scale(&self, dst: ViewMut, factor: f32);
}

impl CopyOps for DryRunBackend {
    fn copy_blocks(&self, _: &BlockCopy, _: View, _: ViewMut) {}
    fn copy_strided(&self, _: &StridedCopy, _: View, _: ViewMut) {}
    fn cast(&self, _: View, _: ViewMut) {}
    fn add_assign(&self, _: ViewMut, _: View) {}
    fn lerp(&self, _: ViewMut, _: View, _: f32) {}
    fn fill(&self, _: ViewMut, _: f32) {}
    fn scale(&self, _: ViewMut, _: f32) {}
}

/// The layout of a strided copy: run `i` goes from `src_start + i * src_stride` to `dst_start + i * dst_stride`. Runs
/// of the destination do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// Number of runs.
    pub blocks: usize,
    /// Elements of a run.
    pub len: usize,
    /// Position of the first run in the source.
    pub src_start: usize,
    /// Distance between the starts of consecutive runs in the source.
    pub src_stride: usize,
    /// Position of the first run in the destination.
    pub dst_start: usize,
    /// Distance between the starts of consecutive runs in the destination.
    pub dst_stride: usize,
}

impl BlockCopy {
    /// Returns the layout of the copy in the other direction.
    pub fn reversed(self) -> BlockCopy {
        let BlockCopy { blocks, len, src_start, src_stride, dst_start, dst_stride } = self;
        BlockCopy {
            blocks,
            len,
            src_start: dst_start,
            src_stride: dst_stride,
            dst_start: src_start,
            dst_stride: src_stride,
        }
    }
}
