//! Results of forward that backward reads, and whether a checkpointed segment may save them.

use std::sync::Arc;

use crate::context::Rank;
use meshwright_backend::Buffer;

/// Results of an operation's forward that its backward reads, besides the output.
pub trait SavedResults: Sized + 'static {
    /// The results as forward returns them.
    type Computed;

    /// Returns the output and the results of an operation of the field at `path`: those that a checkpointed segment has
    /// saved, or computed ones.
    fn saved_or_compute(
        rank: &Rank,
        path: &str,
        compute: impl FnOnce() -> (Buffer, Self::Computed),
    ) -> (Arc<Buffer>, Self);
}

/// Buffers, which a checkpointed segment saves together with the output if its save policy selects the field.
impl<const N: usize> SavedResults for [Arc<Buffer>; N] {
    type Computed = [Buffer; N];

    fn saved_or_compute(
        rank: &Rank,
        path: &str,
        compute: impl FnOnce() -> (Buffer, [Buffer; N]),
    ) -> (Arc<Buffer>, Self) {
        rank.segments().saved_or_compute(path, compute)
    }
}

/// Results that no save policy selects: recomputation always computes them and the output again.
pub(crate) struct AlwaysRecomputed<T>(pub(crate) T);

impl<T: 'static> SavedResults for AlwaysRecomputed<T> {
    type Computed = T;

    fn saved_or_compute(
        _: &Rank,
        _: &str,
        compute: impl FnOnce() -> (Buffer, T),
    ) -> (Arc<Buffer>, Self) {
        let (output, results) = compute();
        (Arc::new(output), AlwaysRecomputed(results))
    }
}
