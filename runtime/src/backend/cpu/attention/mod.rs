//! Scaled dot-product attention in tiles (flash attention); no `seq x seq` matrix exists.
//!
//! Work is partitioned by (sample, key/value head): the query heads that share keys and values run on one thread, so that
//! the gradients of keys and values are summed in a fixed order. Scores, weights and sums of a tile are f32. Their
//! matmuls are computed in f32 ([`widened`]), or in bf16 if the CPU has bf16 dot products ([`dots`]): then weights and
//! gradients of scores are rounded to bf16 before they are multiplied.

mod backward;
mod dense;
#[cfg(target_arch = "x86_64")]
mod dots;
mod forward;
mod heads;
mod widened;

use super::CpuBackend;
use super::float::{Float, by_float};
use crate::backend::cpu::attention::dense::DenseAttention;
use crate::backend::{
    AttentionArgs, AttentionBackwardArgs, AttentionOps, AttentionShape, MergeAttentionArgs,
};

impl AttentionOps for CpuBackend {
    fn attention(&self, shape: &AttentionShape, args: AttentionArgs) {
        let shape = &DenseAttention::of(shape).expect("dense");
        by_float!(args.q.dtype() => T;
            forward::attention::<T>(&self.workers, &self.flops, shape, args));
    }

    fn attention_backward(&self, shape: &AttentionShape, args: AttentionBackwardArgs) {
        let shape = &DenseAttention::of(shape).expect("dense");
        by_float!(args.q.dtype() => T;
            backward::attention_backward::<T>(&self.workers, &self.flops, shape, args));
    }

    fn merge_attention(&self, _: &AttentionShape, _: MergeAttentionArgs) {
        unimplemented!()
    }
}

/// Returns true if tiles of operands of type `T` are multiplied by [`dots`].
#[cfg(target_arch = "x86_64")]
fn by_dots<T: Float>(s: &DenseAttention) -> bool {
    use super::simd::Level;
    // Pairs of an odd head would reach into the next one.
    !T::IS_F32 && s.head_dim.is_multiple_of(2) && Level::detect() == Level::Avx512Bf16
}

/// Elements of a cache line and of the widest register.
const LINE: usize = 16;

/// A splitter of scratch into parts that are aligned to 64 bytes.
struct Parts<'a>(&'a mut [f32]);

impl<'a> Parts<'a> {
    /// Returns the number of elements of parts of these lengths.
    fn len(lens: &[usize]) -> usize {
        lens.iter().map(|len| len.next_multiple_of(LINE)).sum()
    }

    fn take(&mut self, len: usize) -> &'a mut [f32] {
        let (head, tail) = std::mem::take(&mut self.0).split_at_mut(len.next_multiple_of(LINE));
        self.0 = tail;
        &mut head[..len]
    }

    /// Splits off words for pairs of bf16.
    #[cfg(target_arch = "x86_64")]
    fn take_pairs(&mut self, len: usize) -> &'a mut [u32] {
        bytemuck::cast_slice_mut(self.take(len))
    }
}
