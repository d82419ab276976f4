//! Sizes of operands and of tasks.

use crate::float::Float;
use meshwright_backend::{AttentionShape, SequenceLayout};

/// Sizes of the operands of one task: some queries of one head, and the keys that they see.
#[derive(Clone, Copy)]
pub(super) struct TaskSizes {
    pub queries: usize,
    pub keys: usize,
    pub head_dim: usize,
    pub value_dim: usize,
}

impl TaskSizes {
    /// Returns true if tiles of operands of type `T` are multiplied by [`dots`](super::dots).
    #[cfg(target_arch = "x86_64")]
    pub fn by_dots<T: Float>(&self) -> bool {
        use crate::simd::Level;
        // Pairs of an odd head would reach into the next one.
        let even = self.head_dim.is_multiple_of(2) && self.value_dim.is_multiple_of(2);
        !T::IS_F32 && even && Level::detect() == Level::Avx512Bf16
    }
}

/// Asserts the conditions on which both directions rely.
pub(super) fn check_shape(s: &AttentionShape) {
    assert!(s.scale > 0.0, "the order of scores is that of scaled scores: {s:?}");
    assert!(s.soft_cap.is_none_or(|cap| cap > 0.0), "a soft cap is positive: {s:?}");
    assert!(s.head_dim > 0 && s.value_dim > 0, "heads have elements: {s:?}");
    for layout in [s.queries, s.keys] {
        assert!(layout.len <= layout.pitch, "samples do not overlap: {s:?}");
    }
    let exists = |head: usize| s.kv_head(head) < s.kv_heads;
    assert!(s.group > 0 && s.heads.checked_sub(1).is_none_or(exists), "keys of each head: {s:?}");
}

/// Asserts the lengths of operands `[batch, positions, heads, dim]`.
pub(super) fn check_rows(
    s: &AttentionShape,
    layout: SequenceLayout,
    [heads, dim]: [usize; 2],
    lens: &[usize],
) {
    let least = layout.span(s.batch) * heads * dim;
    assert!(lens.iter().all(|len| *len >= least), "operands of {least} elements: {lens:?}, {s:?}");
}

/// Asserts the length of log-sum-exps.
pub(super) fn check_lse(s: &AttentionShape, len: usize) {
    let least = s.queries.span(s.batch * s.heads);
    assert!(len >= least, "{least} log-sum-exps: {len}, {s:?}");
}

/// Asserts the length of an operand with some elements for each query head.
pub(super) fn check_heads(s: &AttentionShape, each: usize, len: usize) {
    assert_eq!(len, s.heads * each, "{each} elements for each head: {s:?}");
}
