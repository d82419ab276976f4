//! Softmax statistics of rows of logits, and the gradients of a cross-entropy from them; the vocabulary may be split.

use std::ops::Range;

use crate::layout::{AxisSet, Dims};
use crate::tensor::{Extent, Rank, RowLosses, Targets};
use meshwright_backend::ops::head::SmoothedGradArgs;
use meshwright_backend::ops::loss::{
    CrossEntropyArgs, CrossEntropyGradArgs, CrossEntropyLossArgs, ExpSumArgs, MaxExpSumArgs,
};
use meshwright_backend::{Buffer, DType, MiddleDim, View, ViewMut};
use meshwright_comm::{ReduceOp, Site};

use super::HeadOptions;

/// Rows of logits, with the columns of this rank's shard of the vocabulary.
pub(super) struct LogitRows<'a> {
    pub(super) rank: &'a Rank,
    pub(super) axes: AxisSet,
    pub(super) site: &'a Site,
    /// This rank's range of the vocabulary.
    pub(super) vocab: Extent,
    pub(super) options: HeadOptions,
}

/// Per-row softmax statistics, reduced over the ranks that share a vocabulary.
pub(super) struct Stats {
    max: Buffer,
    sum_exp: Buffer,
    target_logit: Buffer,
}

impl LogitRows<'_> {
    /// Checks that each target is in the vocabulary or ignored: no rank holds a logit beyond the vocabulary.
    #[track_caller]
    pub(super) fn check_targets<S: Dims>(&self, targets: &Targets<S>) {
        let counts = |target: &&u32| **target != Targets::<S>::IGNORED;
        let beyond = |target: &&u32| **target as usize >= self.vocab.global;
        if let Some(target) = targets.ids_to_check().iter().filter(counts).find(beyond) {
            let (site, vocab) = (self.site, self.vocab.global);
            panic!("`{site}`: target id {target} is beyond the vocabulary of {vocab}");
        }
    }

    /// Computes the statistics of one row per target, starting at row `first`.
    pub(super) fn fill_stats(
        &self,
        stats: &mut Stats,
        first: usize,
        logits: View<'_>,
        targets: View<'_>,
    ) {
        let [mut max, mut sum_exp, mut target_logit] = stats.rows_mut(first..first + targets.len());
        let backend = self.rank.backend();
        let (cols, first_col) = (self.vocab.local, self.vocab.offset);
        if self.rank.degree_of(self.axes) == 1 {
            backend.max_exp_sum(MaxExpSumArgs {
                cols,
                logits,
                targets,
                first_col,
                max,
                sum_exp,
                target_logit: target_logit.reborrow(),
            });
            self.smooth_targets(logits, target_logit);
            return;
        }
        let reduce = |op, data: ViewMut<'_>| self.rank.all_reduce(self.axes, self.site, op, data);
        backend.row_max(cols, logits, max.reborrow());
        reduce(ReduceOp::Max, max.reborrow());
        backend.exp_sum(ExpSumArgs {
            cols,
            logits,
            max: max.as_view(),
            targets,
            first_col,
            sum_exp: sum_exp.reborrow(),
            target_logit: target_logit.reborrow(),
        });
        reduce(ReduceOp::Sum, sum_exp);
        reduce(ReduceOp::Sum, target_logit.reborrow());
        self.smooth_targets(logits, target_logit);
    }

    /// Replaces the logit of each target by `(1 - e) logit + e mean(logits)`, with which the loss has label smoothing.
    fn smooth_targets(&self, logits: View<'_>, mut target_logit: ViewMut<'_>) {
        let smoothing = self.options.label_smoothing;
        if smoothing == 0.0 {
            return;
        }
        let (rank, rows) = (self.rank, target_logit.len());
        let mut means = rank.alloc_scratch(DType::F32, rows);
        let dim = MiddleDim { outer: rows, len: self.vocab.local, inner: 1 };
        let share = smoothing / self.vocab.global as f32;
        rank.backend().sum_dim(dim, logits, means.view_mut(), share);
        if rank.degree_of(self.axes) > 1 {
            rank.all_reduce(self.axes, self.site, ReduceOp::Sum, means.view_mut());
        }
        rank.backend().scale(target_logit.reborrow(), 1.0 - smoothing);
        rank.backend().add_assign(target_logit, means.view());
    }

    /// Computes the statistics of one row per target, starting at row `first`, and replaces the logits of these rows by
    /// their gradients, times `scale` of each row.
    pub(super) fn differentiate(
        &self,
        stats: &mut Stats,
        first: usize,
        mut logits: ViewMut<'_>,
        targets: View<'_>,
        scale: View<'_>,
    ) {
        if self.rank.degree_of(self.axes) > 1 || !self.options.has_plain_gradient() {
            self.fill_stats(stats, first, logits.as_view(), targets);
            stats.differentiate(self, first, logits.reborrow(), targets, scale);
            return;
        }
        let (cols, first_col) = (self.vocab.local, self.vocab.offset);
        let [max, sum_exp, target_logit] = stats.rows_mut(first..first + targets.len());
        let backend = self.rank.backend();
        backend.cross_entropy(CrossEntropyArgs {
            cols,
            logits,
            targets,
            first_col,
            row_scale: scale,
            max,
            sum_exp,
            target_logit,
        });
    }
}

impl Stats {
    /// Allocates the statistics of `rows` rows.
    pub(super) fn new(rank: &Rank, rows: usize) -> Stats {
        let [max, sum_exp, target_logit] = [(); 3].map(|()| rank.alloc_statistics(rows));
        Stats { max, sum_exp, target_logit }
    }

    /// Returns the maxima of rows, the sums of exponentials relative to them, and the logits of targets.
    pub(super) fn views(&self) -> [View<'_>; 3] {
        [&self.max, &self.sum_exp, &self.target_logit].map(Buffer::view)
    }

    /// Returns mutable views of the statistics of some rows: maxima, sums of exponentials and the targets' logits.
    fn rows_mut(&mut self, rows: Range<usize>) -> [ViewMut<'_>; 3] {
        [&mut self.max, &mut self.sum_exp, &mut self.target_logit]
            .map(|statistic| statistic.view_mut().into_slice(rows.clone()))
    }

    /// Replaces the logits of the rows starting at `first` by their gradients, times `scale` of each row.
    pub(super) fn differentiate(
        &self,
        rows: &LogitRows<'_>,
        first: usize,
        logits: ViewMut<'_>,
        targets: View<'_>,
        scale: View<'_>,
    ) {
        let LogitRows { rank, vocab, options, .. } = *rows;
        let rows = first..first + targets.len();
        let [max, sum] = [&self.max, &self.sum_exp].map(|stat| stat.view().slice(rows.clone()));
        let backend = rank.backend();
        if !options.has_plain_gradient() {
            backend.smoothed_grad(SmoothedGradArgs {
                cols: vocab.local,
                logits,
                max,
                sum_exp: sum,
                targets,
                first_col: vocab.offset,
                row_scale: scale,
                vocab: vocab.global,
                label_smoothing: options.label_smoothing,
                z_loss: options.z_loss,
                soft_cap: options.soft_cap,
            });
            return;
        }
        backend.cross_entropy_grad(CrossEntropyGradArgs {
            cols: vocab.local,
            logits,
            max,
            sum_exp: sum,
            targets,
            first_col: vocab.offset,
            row_scale: scale,
        });
    }

    /// Returns the sum of the losses of all rows, as one element.
    pub(super) fn loss(&self, rank: &Rank, targets: View<'_>) -> Buffer {
        let mut sum = rank.alloc_statistics(1);
        self.sum_losses(rank, 0, targets, sum.view_mut());
        sum
    }

    /// Computes the sums of the losses over each row of the batch, if they are kept.
    pub(super) fn fill_row_losses(
        &self,
        rank: &Rank,
        row_losses: Option<&RowLosses>,
        targets: View<'_>,
    ) {
        let Some(row_losses) = row_losses else { return };
        row_losses.fill(|rows| {
            let mut sums = rank.alloc_statistics(rows);
            let len = targets.len() / rows;
            for row in 0..rows {
                let (first, sum) = (row * len, sums.view_mut().into_slice(row..row + 1));
                self.sum_losses(rank, first, targets.slice(first..first + len), sum);
            }
            sums
        });
    }

    /// Writes the sum of the losses of `targets`, of the rows from `first` on.
    fn sum_losses(&self, rank: &Rank, first: usize, targets: View<'_>, sum: ViewMut<'_>) {
        let rows = first..first + targets.len();
        let [max, sum_exp, target_logit] = [&self.max, &self.sum_exp, &self.target_logit]
            .map(|statistic| statistic.view().slice(rows.clone()));
        let args = CrossEntropyLossArgs { max, sum_exp, target_logit, targets, sum };
        rank.backend().cross_entropy_loss(args);
    }
}
