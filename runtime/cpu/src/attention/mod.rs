//! Scaled dot-product attention in tiles (flash attention); no matrix of queries by keys exists.
//!
//! Work is partitioned by (sample, key/value head): the query heads that share keys and values run on one thread, so
//! that the gradients of keys and values are summed in a fixed order. If threads would have nothing to do, the forward
//! pass, whose rows are independent, is also partitioned by queries, and the backward pass by blocks of keys, which add
//! to the gradients of queries in a fixed order. Scores, weights and sums of a tile are f32. Their matmuls are computed
//! in f32 ([`widened`]), or in bf16 if the CPU has bf16 dot products ([`dots`]): then weights and gradients of scores
//! are rounded to bf16 before they are multiplied.
//!
//! The mask is the first visible key of each query and the end of its visible keys ([`mask`]), from which follow the
//! tiles that are computed at all. Soft caps and biases are passes of their own over a tile ([`scoring`]), as is
//! dropout ([`dropout`]); plain attention has none of them.

mod backward;
mod backward_tiles;
#[cfg(target_arch = "x86_64")]
mod dots;
mod dropout;
mod forward;
mod forward_tiles;
mod head_sums;
mod heads;
mod mask;
mod merge;
mod online_softmax;
mod results;
mod scoring;
mod shift;
mod sizes;
mod widened;

use super::CpuBackend;
use super::float::by_float;
use meshwright_backend::ops::attention::{
    AttentionArgs, AttentionBackwardArgs, MergeAttentionArgs,
};
use meshwright_backend::{AttentionOps, AttentionShape};

impl AttentionOps for CpuBackend {
    fn attention(&self, shape: &AttentionShape, args: AttentionArgs) {
        by_float!(args.q.dtype() => T;
            forward::attention::<T>(&self.workers, &self.flops, shape, args));
    }

    fn attention_backward(&self, shape: &AttentionShape, args: AttentionBackwardArgs) {
        by_float!(args.q.dtype() => T;
            backward::attention_backward::<T>(&self.workers, &self.flops, shape, args));
    }

    fn merge_attention(&self, shape: &AttentionShape, args: MergeAttentionArgs) {
        merge::merge_attention(&self.workers, shape, args);
    }
}

/// Elements of a cache line and of the widest register.
const LINE: usize = 16;

/// A splitter of scratch into parts that are aligned to 64 bytes.
struct ScratchParts<'a>(&'a mut [f32]);

impl<'a> ScratchParts<'a> {
    /// Returns the number of elements of parts of these lengths.
    fn len(lens: &[usize]) -> usize {
        lens.iter().map(|len| len.next_multiple_of(LINE)).sum()
    }

    fn take_part(&mut self, len: usize) -> &'a mut [f32] {
        let (head, tail) = std::mem::take(&mut self.0).split_at_mut(len.next_multiple_of(LINE));
        self.0 = tail;
        &mut head[..len]
    }

    /// Splits off words for pairs of bf16.
    #[cfg(target_arch = "x86_64")]
    fn take_pairs(&mut self, len: usize) -> &'a mut [u32] {
        bytemuck::cast_slice_mut(self.take_part(len))
    }
}
