//! Biases of scores by the distance of the key from the query, for kernels.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::tensor::{OperationParam, Rank};
use meshwright_backend::{Buffer, Category, DistanceBias, Gemm, View, ViewMut};

/// Distances of keys from queries that have biases of their own. Farther ones have the bias of the nearest of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Distances {
    /// Positions before that of the query.
    pub(super) before: usize,
    /// Positions after it.
    pub(super) after: usize,
}

impl Distances {
    /// Number of distances.
    pub(super) fn count(self) -> usize {
        self.before + 1 + self.after
    }

    /// Index of the key at the position of the query.
    fn zero(self) -> usize {
        self.before
    }

    /// Iterates over the positions of keys relative to that of the query.
    pub(super) fn iter(self) -> RangeInclusive<isize> {
        -(self.before as isize)..=self.after as isize
    }
}

/// The bias on scores of one application of attention.
pub(super) enum ScoreBias<'a> {
    /// Constants, f32 `[heads, distances]`.
    Constant(Arc<Buffer>, Distances),
    /// Elements of a learned table `[buckets, heads]`.
    Learned(OperationParam<'a>, Arc<BucketOfDistance>),
}

/// The bucket of each distance, as a matrix: a one in the row of the bucket, zeros in the others.
pub(super) struct BucketOfDistance {
    /// f32 `[buckets, distances]`.
    one_hot: Buffer,
    buckets: usize,
    pub(super) distances: Distances,
}

impl BucketOfDistance {
    /// Creates the matrix of `buckets` by `distances`; `bucket` maps a distance to its bucket.
    pub(super) fn new(
        rank: &Rank,
        buckets: usize,
        distances: Distances,
        bucket: impl Fn(isize) -> usize,
    ) -> BucketOfDistance {
        let count = distances.count();
        let mut one_hot = vec![0f32; buckets * count];
        for (index, distance) in distances.iter().enumerate() {
            one_hot[bucket(distance) * count + index] = 1.0;
        }
        let one_hot = rank.allocator().copy_of(&one_hot, Category::Activations);
        BucketOfDistance { one_hot, buckets, distances }
    }

    /// Returns the elements of `table`, f32 `[buckets, heads]`, by distance: f32 `[heads, distances]`.
    pub(super) fn expand(&self, rank: &Rank, table: &Buffer) -> Buffer {
        let (heads, count) = (table.len() / self.buckets, self.distances.count());
        let mut values = rank.alloc_statistics(heads * count);
        let gemm = self.gemm(heads, count, self.buckets);
        let gemm = Gemm { trans_a: true, ..gemm };
        rank.backend().gemm(&gemm, table.view(), self.one_hot.view(), values.view_mut());
        values
    }

    /// Sums the gradient `dvalues` of [`expand`](Self::expand) over the distances of each bucket.
    pub(super) fn add_table_gradient(
        &self,
        rank: &Rank,
        dvalues: &Buffer,
        dtable: ViewMut<'_>,
        accumulate: bool,
    ) {
        let count = self.distances.count();
        let gemm = self.gemm(self.buckets, dvalues.len() / count, count);
        let gemm = Gemm { trans_b: true, accumulate, ..gemm };
        rank.backend().gemm(&gemm, self.one_hot.view(), dvalues.view(), dtable);
    }

    fn gemm(&self, m: usize, n: usize, k: usize) -> Gemm {
        Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false }
    }
}

/// A bias of kernels, which lasts as long as their call.
pub(super) fn distance_bias(values: &Buffer, distances: Distances) -> DistanceBias<'_> {
    DistanceBias { values: values.view(), distances: distances.count(), zero: distances.zero() }
}

/// Returns the values of a parameter in f32.
pub(super) fn widened(rank: &Rank, param: View<'_>) -> Buffer {
    let mut wide = rank.alloc_statistics(param.len());
    rank.backend().cast(param, wide.view_mut());
    wide
}
