//! Metrics as ratios, like losses: summed over the ranks, then divided once.

use std::marker::PhantomData;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::panic::Location;
use std::sync::Arc;

use crate::context::Rank;
use crate::layout::{AxisSet, Dims, Seal};
use meshwright_backend::{Buffer, GraphBuffer, GraphPool};
use meshwright_comm::Site;
use meshwright_mesh::__internal::{local_len, shape_name};

use super::never_applies::never_applies;
use super::reduce::{sum_of_elements, sum_over_targets};
use super::row_losses::RowSums;
use super::{Operand, Targets, Tensor, Tokens};

/// A mean over everything shaped `S`: sum and count of this rank, both still to be summed over the axes over which `S`
/// varies. Nothing is differentiated through it.
#[must_use = "a metric has no value until `.reduce()`"]
pub struct Metric<S> {
    rank: Rank,
    sum: MetricSum,
    count: f64,
    /// The axes over which sum and count are still to be summed.
    axes: AxisSet,
    /// The sums of its rows, if they are kept.
    rows: RowSums,
    shape: PhantomData<S>,
}

/// A sum, known to the host or still to be written by a device.
enum MetricSum {
    Known(f64),
    In(Arc<Buffer>),
}

impl<S: Dims> Metric<S> {
    /// Creates a mean over all ranks from the `sum` and `count` that this rank has computed from its block of `of`:
    /// hits and tries for an accuracy.
    ///
    /// The axes over which both are summed follow from the type of `of`, so it has to be the tensor, or the token ids,
    /// that the numbers were computed from.
    #[track_caller]
    pub fn of<T: HasShape<Shape = S>>(of: &T, sum: f64, count: u64) -> Metric<S> {
        for number in [sum as f32, count as f32] {
            let name = || format!("the sum or count of a metric of {}", shape_name(S::DIMS));
            of.rank().declared_values().note_number(name, S::VARIES, Location::caller(), number);
        }
        Metric::of_known(of.rank(), sum, count as f64)
    }

    /// Creates the mean of all elements of `terms`, on all ranks.
    #[track_caller]
    pub fn mean_of<T: Operand<Shape = S>>(terms: &T) -> Metric<S> {
        let terms = terms.operand();
        terms.rank().evaluate(|| {
            let sum = sum_of_elements(terms.value()).compute().data;
            Metric::of_buffer(terms.rank(), sum, local_len(terms.local_extents()) as f64)
        })
    }

    /// Creates the mean of the `terms` whose target is not ignored, on all ranks, as
    /// [`Loss::masked_mean_of`](super::Loss::masked_mean_of) does.
    ///
    /// # Panics
    /// If terms and targets have other sizes, or are of other micro-batches.
    #[track_caller]
    pub fn masked_mean_of<T: Operand<Shape = S>>(terms: &T, targets: &Targets<S>) -> Metric<S> {
        let terms = terms.operand();
        terms.rank().evaluate(|| {
            let sum = sum_over_targets(terms, targets).compute().data;
            Metric::of_buffer(terms.rank(), sum, targets.target_count() as f64)
        })
    }

    /// Never compiles: a metric has the shape of the tensor that it was computed from.
    #[doc(hidden)]
    pub fn new(_: &Rank, _: f64, _: u64) -> Metric<S>
    where
        Self: MadeOfTensor,
    {
        Self::never_implemented()
    }

    fn of_known(rank: &Rank, sum: f64, count: f64) -> Metric<S> {
        Metric::with_sum(rank, MetricSum::Known(sum), count)
    }

    fn with_sum(rank: &Rank, sum: MetricSum, count: f64) -> Metric<S> {
        let rows = RowSums::none();
        Metric { rank: rank.clone(), sum, count, axes: S::VARIES, rows, shape: PhantomData }
    }

    /// Creates a metric to which this rank contributes nothing.
    #[doc(hidden)]
    pub fn without_contribution(rank: &Rank) -> Metric<S> {
        Metric::of_known(rank, 0.0, 0.0)
    }

    /// Returns the metric summed over further `axes`, on whose other ranks it is
    /// [without contribution](Self::without_contribution).
    #[doc(hidden)]
    pub fn summed_over(self, axes: AxisSet) -> Metric<S> {
        Metric { axes: self.axes.union(axes), ..self }
    }

    /// Creates the mean whose sum is the number in a buffer.
    pub(crate) fn of_buffer(rank: &Rank, sum: Arc<Buffer>, count: f64) -> Metric<S> {
        match rank.allocator().device() {
            // The number is available immediately, and the buffer need not be kept.
            None => Metric::of_known(rank, read_number(&sum), count),
            Some(_) => Metric::with_sum(rank, MetricSum::In(sum), count),
        }
    }

    /// Returns the metric with the sums of its rows.
    pub(super) fn with_rows(self, rows: RowSums) -> Metric<S> {
        Metric { rows, ..self }
    }

    /// The sums of its rows, if they are kept.
    pub(super) fn rows(&self) -> &RowSums {
        &self.rows
    }

    /// Returns this rank's shares of the sums of each row, which add up to the sum; `None` if they are not kept, or
    /// this rank contributes nothing.
    #[doc(hidden)]
    pub fn row_shares(&self) -> Option<Vec<f64>> {
        let rows = self.rows.read()?;
        Some(rows.into_iter().map(|sum| self.rank.share_of(self.axes, sum)).collect())
    }

    /// Returns the address to which a captured CUDA graph writes the sum, if it is in device memory.
    pub(super) fn graph_buffer(&self, recordings: &Arc<GraphPool>) -> Option<GraphBuffer> {
        match &self.sum {
            MetricSum::Known(_) => None,
            MetricSum::In(buffer) => Some(recordings.buffer(buffer.view())),
        }
    }

    /// Returns the number of elements that this rank counts, or the sum of their weights.
    pub(super) fn count(&self) -> f64 {
        self.count
    }

    /// Returns this rank's sum, for messages about a loss that is not finite.
    #[doc(hidden)]
    pub fn local_sum(&self) -> f64 {
        match &self.sum {
            MetricSum::Known(sum) => *sum,
            MetricSum::In(buffer) => read_number(buffer),
        }
    }

    /// Returns this rank's shares of the sum and the count of all ranks.
    #[doc(hidden)]
    pub fn shares(&self) -> [f64; 2] {
        [self.local_sum(), self.count].map(|number| self.rank.share_of(self.axes, number))
    }

    /// Reduces the mean over all ranks: one small all-reduce.
    #[track_caller]
    pub fn reduce(&self) -> Mean {
        let mut parts = [self.local_sum(), self.count];
        self.rank.all_reduce_f64(self.axes, &Site::here("Metric::reduce"), &mut parts);
        Mean::of_sums(&parts)
    }

    /// Never compiles: a metric has no value before its sum and count are reduced over the ranks.
    #[doc(hidden)]
    pub fn value(&self) -> f64
    where
        Self: HasValue,
    {
        Self::never_implemented()
    }
}

/// A value that is distributed in blocks over the ranks: a tensor, or token ids.
pub trait HasShape {
    /// Dims of the value, and how they are split.
    type Shape: Dims;
    /// Returns the rank that holds the block.
    fn rank(&self) -> &Rank;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<S: Dims> HasShape for Tensor<S> {
    type Shape = S;
    const SEAL: Seal = Seal::new();

    fn rank(&self) -> &Rank {
        Tensor::rank(self)
    }
}

impl<S: Dims> HasShape for Tokens<S> {
    type Shape = S;
    const SEAL: Seal = Seal::new();

    fn rank(&self) -> &Rank {
        Tokens::rank(self)
    }
}

/// Never implemented: a metric of bare numbers, without the axes over which they vary.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made of bare numbers",
    label = "the axes of the sum follow from the tensor that was counted",
    note = "name the tensor that the numbers were computed from: `Metric::of(&x, sum, count)`; of a tensor, \
            `Metric::mean_of(&x)`"
)]
pub trait MadeOfTensor {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

/// Reads the only element of a buffer.
pub(super) fn read_number(buffer: &Buffer) -> f64 {
    f64::from(buffer.view().to_vec::<f32>()[0])
}

/// A mean over all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    /// Creates the mean of a sum and a count.
    pub(super) fn of_sums(sums: &[f64]) -> Mean {
        Mean { sum: sums[0], count: sums[1] }
    }

    /// Returns the sum divided by the count; zero if nothing counted.
    pub fn value(&self) -> f64 {
        if self.count == 0.0 { 0.0 } else { self.sum / self.count }
    }

    /// Returns the number of elements that counted. Of weighted elements it is the sum of the weights, rounded down.
    pub fn count(&self) -> u64 {
        self.count as u64
    }
}

/// Adds sums and counts: the mean over the elements of both.
impl Add for Mean {
    type Output = Mean;

    fn add(mut self, other: Mean) -> Mean {
        self += other;
        self
    }
}

/// Adds sums and counts: the mean over the elements of both.
impl AddAssign for Mean {
    fn add_assign(&mut self, other: Mean) {
        self.sum += other.sum;
        self.count += other.count;
    }
}

/// Never implemented: an operand of a metric.
#[diagnostic::on_unimplemented(
    message = "a metric is not added, averaged or scaled before it is reduced",
    label = "this is a sum and a count of this rank, divided once, after both are summed over the ranks",
    note = "means are added: `a.reduce() + b.reduce()` is the mean over the elements of both, and `mean += \
            metric.reduce()` adds a batch to those before",
    note = "`.reduce().value()` is a number"
)]
pub trait CombinesMetrics {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

never_applies! {
    <S> Metric<S>, CombinesMetrics:
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

never_applies! {
    in place AddsInPlace <S> Metric<S>, CombinesMetrics:
    AddAssign add_assign;
}

/// Never implemented: a loss or metric that could be read before its reduction.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is this rank's part of a mean, not yet its value",
    label = "`.reduce()` it first",
    note = "`.reduce().value()` sums numerator and count over the ranks and divides once"
)]
pub trait HasValue {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_counts_are_added() {
        let [few, many] = [(1.0, 2.0), (9.0, 3.0)].map(|(sum, count)| Mean { sum, count });
        assert_eq!((few + many).value(), 2.0);
        assert_eq!((few + many).count(), 5);
        assert_eq!((Mean::default() + few).value(), 0.5);
    }
}
