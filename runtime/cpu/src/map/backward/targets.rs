//! Gradients of leaves that are written block by block.

use super::BackwardPlan;
use crate::float::{Float, convert, store_rounded};
use crate::map::block::BLOCK;
use crate::workers::SplitChunks;
use meshwright_backend::LeafGrad;

/// Gradients of leaves that are written block by block.
pub(super) struct LeafTargets<'a, T>(Vec<Option<&'a mut [T]>>);

impl<'a, T: Float> LeafTargets<'a, T> {
    pub(super) fn new(plan: &BackwardPlan, leaf_grads: &'a mut [Option<LeafGrad>]) -> Self {
        let targets = leaf_grads.iter_mut().zip(&plan.direct).map(|(slot, direct)| match slot {
            Some(slot) if *direct => Some(slot.view.typed::<T>()),
            _ => None,
        });
        LeafTargets(targets.collect())
    }

    /// Widens a block of the gradients that are accumulated, unless they are f32.
    #[inline(always)]
    pub(super) fn load_gradients(
        &self,
        at: usize,
        len: usize,
        accumulate: &[bool],
        leaf_grads: &mut [f32],
    ) {
        if T::IS_F32 {
            return;
        }
        let blocks = self.0.iter().zip(accumulate).zip(leaf_grads.chunks_exact_mut(BLOCK));
        for ((target, accumulate), block) in blocks {
            if let (Some(target), true) = (target, accumulate) {
                convert(&target[at..][..len], &mut block[..len]);
            }
        }
    }

    /// Returns the slice that sums a block of the gradient of `leaf`.
    #[inline(always)]
    pub(super) fn block<'b>(
        &'b mut self,
        leaf: usize,
        at: usize,
        len: usize,
        leaf_grads: &'b mut [f32],
    ) -> Option<&'b mut [f32]> {
        let target = &mut self.0[leaf].as_mut()?[at..][..len];
        Some(match T::in_place_mut(target) {
            Some(target) => target,
            None => &mut leaf_grads[leaf * BLOCK..][..len],
        })
    }

    /// Rounds a block of every gradient that was written, unless they are f32.
    #[inline(always)]
    pub(super) fn store_gradients(
        &mut self,
        at: usize,
        len: usize,
        written: &[bool],
        leaf_grads: &[f32],
    ) {
        if T::IS_F32 {
            return;
        }
        let blocks = self.0.iter_mut().zip(written).zip(leaf_grads.chunks_exact(BLOCK));
        for ((target, written), block) in blocks {
            if let (Some(target), true) = (target, written) {
                store_rounded(&block[..len], &mut target[at..][..len]);
            }
        }
    }
}

impl<T: Float> SplitChunks for LeafTargets<'_, T> {
    fn split_rows(self, blocks: usize) -> (Self, Self) {
        let halves = self.0.into_iter().map(|target| match target {
            None => (None, None),
            Some(target) => {
                let (head, rest) = target.split_at_mut((blocks * BLOCK).min(target.len()));
                (Some(head), Some(rest))
            }
        });
        let (head, rest) = halves.unzip();
        (LeafTargets(head), LeafTargets(rest))
    }
}

/// [`LeafTargets`] split in chunks of a number of blocks.
pub(super) struct ChunkTargets<'a, T>(pub(super) LeafTargets<'a, T>, pub(super) usize);

impl<T: Float> SplitChunks for ChunkTargets<'_, T> {
    fn split_rows(self, chunks: usize) -> (Self, Self) {
        let (head, rest) = self.0.split_rows(chunks * self.1);
        (ChunkTargets(head, self.1), ChunkTargets(rest, self.1))
    }
}
