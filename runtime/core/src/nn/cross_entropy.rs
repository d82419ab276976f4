//! Cross-entropy over a whole vocabulary, or vocabulary-parallel (also called vocab-parallel).

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use crate::layout::{
    Axis, AxisSet, Dims, Ends, Feature, ModelAxis, OnEveryRank, Seal, Split, Whole,
};
use crate::tensor::{
    AlwaysRecomputed, Count, Extent, InBackward, Loss, Operand, Operands, Operation,
    OperationBackward, OperationForward, OperationInput, Rank, RowLosses, Targets, apply,
    begin_function, check_sizes, set_backward_location,
};
use meshwright_backend::ops::loss::{
    CrossEntropyArgs, CrossEntropyGradArgs, CrossEntropyLossArgs, ExpSumArgs, MaxExpSumArgs,
};
use meshwright_backend::{Buffer, DType, View, ViewMut};
use meshwright_comm::{ReduceOp, Site};

use super::debug::debug_layers;
use super::{Build, Builder, Plain, Shard, VocabSplit};

/// Mean of `-log softmax(logits)[target]` over the tokens whose target is not ignored.
///
/// Shape: logits `[.., V]` and targets `[..]` to a loss.
///
/// With `#[sharded(tp = "vocab")]` the vocabulary of the logits is split: the ranks exchange a maximum, a sum of
/// exponentials and the target's logit for each token, never the logits.
pub struct CrossEntropy<V, Style = Plain> {
    site: Site,
    kind: PhantomData<(V, Style)>,
}

/// Shapes of logits for a cross-entropy over vocabulary `V` in style `Style`.
#[diagnostic::on_unimplemented(
    message = "this cross-entropy over `{V}` cannot take logits shaped `{Self}`",
    label = "`{V}` is not the last dim, or not split as the loss expects",
    note = "shard head and loss alike: `#[sharded(tp = \"vocab\")]` on the `CrossEntropy` if the logits are split over \
            `{V}`, and on neither if they are whole"
)]
pub trait LogitsOf<V, Style>: Dims {
    /// The shape of the targets.
    type Lead: Dims;
    /// The axes over which the vocabulary is split.
    const VOCAB_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<V>, V: Whole> LogitsOf<V, Plain> for X
where
    X::Lead: Dims,
{
    type Lead = X::Lead;
    const VOCAB_AXES: AxisSet = AxisSet::NONE;
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<X: Ends<Split<V, A>>, V: Whole, A: Axis> LogitsOf<V, VocabSplit<A>> for X
where
    X::Lead: Dims,
    Split<V, A>: Feature,
{
    type Lead = X::Lead;
    const VOCAB_AXES: AxisSet = A::AXES;
    const SEAL: Seal = Seal::new();
}

impl<V, Style> CrossEntropy<V, Style> {
    /// Computes the loss of `logits` shaped `[.., V]` for targets shaped `[..]`.
    #[track_caller]
    pub fn forward<T: Operand>(
        &self,
        logits: &T,
        targets: &Targets<<T::Shape as LogitsOf<V, Style>>::Lead>,
    ) -> Loss<<T::Shape as LogitsOf<V, Style>>::Lead>
    where
        T::Shape: LogitsOf<V, Style>,
    {
        let x = logits.operand().value();
        let rank = x.rank();
        let (vocab, lead) = x.extents().split_last().expect("logits end in a vocabulary");
        let (vocab, dims) = (*vocab, <T::Shape as LogitsOf<V, Style>>::Lead::DIMS);
        rank.check_same(targets.rank());
        check_sizes(dims, ("logits", lead), ("their targets", targets.local_extents()));
        let axes = T::Shape::VOCAB_AXES;
        LogitRows { rank, axes, site: &self.site, vocab }.check_targets(targets);
        let row_losses = RowLosses::of_targets(targets);
        let operation = CrossEntropyOperation {
            site: self.site.clone(),
            axes,
            vocab,
            ids: Arc::clone(targets.id_buffer()),
            counted: rank.records_operations().then(|| Arc::clone(targets.counted_targets())),
            row_losses: row_losses.clone(),
        };
        let operands = Operands::<Count<1>, Count<0>> {
            rank,
            path: self.site.field(),
            inputs: [OperationInput::new(x, InBackward::Reads)],
            params: [],
            extents: Vec::new(),
        };
        let outer = begin_function("CrossEntropy::forward");
        let sum = apply(operation, operands);
        set_backward_location(outer);
        Loss::new(sum, targets.target_count()).with_rows(row_losses)
    }
}

/// The sum of the losses of all rows of logits.
struct CrossEntropyOperation {
    site: Site,
    /// The axes over which the vocabulary is split.
    axes: AxisSet,
    /// This rank's range of the vocabulary.
    vocab: Extent,
    /// Target ids.
    ids: Arc<Buffer>,
    /// 0 for the rows whose target is ignored, else 1, for backward.
    counted: Option<Arc<Buffer>>,
    /// The place for the losses of rows, if they are kept.
    row_losses: Option<RowLosses>,
}

impl Operation<Count<1>, Count<0>> for CrossEntropyOperation {
    type Saved = AlwaysRecomputed<Stats>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, Stats) {
        let OperationForward { rank, inputs: [logits], .. } = forward;
        let rows = LogitRows { rank, axes: self.axes, site: &self.site, vocab: self.vocab };
        let mut stats = Stats::new(rank, self.ids.len());
        rows.fill_stats(&mut stats, 0, logits.compute().data.view(), self.ids.view());
        stats.fill_row_losses(rank, self.row_losses.as_ref(), self.ids.view());
        (stats.loss(rank, self.ids.view()), stats)
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        AlwaysRecomputed(stats): AlwaysRecomputed<Stats>,
    ) {
        let OperationBackward { gradients, inputs: [mut x], gradient: seed, .. } = backward;
        let rank = gradients.rank;
        let counted = self.counted.expect("a recorded loss has the weights of its rows");
        // The logits themselves, if nothing else holds them.
        let mut gradient = gradients.unshared_gradient(x.take_saved(rank));
        let scale = scaled(rank, &counted, gradients.scalar_gradient(&seed));
        let logits = gradient.view_mut();
        stats.differentiate(rank, self.vocab, 0, logits, self.ids.view(), scale.view());
        x.add_gradient(gradients, gradient.into());
    }
}

impl<V: Whole> Build for CrossEntropy<V, Plain>
where
    V::Home: OnEveryRank<V>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        CrossEntropy { site: builder.site(), kind: PhantomData }
    }
}

impl<V: Whole, A: ModelAxis> Build for CrossEntropy<V, VocabSplit<A>>
where
    V::Home: OnEveryRank<V>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        CrossEntropy { site: builder.site(), kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<V, A> Shard<VocabSplit<A>> for CrossEntropy<V> {
    type Sharded = CrossEntropy<V, VocabSplit<A>>;
}

/// Rows of logits, with the columns of this rank's shard of the vocabulary.
pub(super) struct LogitRows<'a> {
    pub(super) rank: &'a Rank,
    pub(super) axes: AxisSet,
    pub(super) site: &'a Site,
    /// This rank's range of the vocabulary.
    pub(super) vocab: Extent,
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
                target_logit,
            });
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
        reduce(ReduceOp::Sum, target_logit);
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
        if self.rank.degree_of(self.axes) > 1 {
            self.fill_stats(stats, first, logits.as_view(), targets);
            stats.differentiate(self.rank, self.vocab, first, logits.reborrow(), targets, scale);
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

    /// Returns mutable views of the statistics of some rows: maxima, sums of exponentials and the targets' logits.
    fn rows_mut(&mut self, rows: Range<usize>) -> [ViewMut<'_>; 3] {
        [&mut self.max, &mut self.sum_exp, &mut self.target_logit]
            .map(|statistic| statistic.view_mut().into_slice(rows.clone()))
    }

    /// Replaces the logits of the rows starting at `first` by their gradients, times `scale` of each row.
    pub(super) fn differentiate(
        &self,
        rank: &Rank,
        vocab: Extent,
        first: usize,
        logits: ViewMut<'_>,
        targets: View<'_>,
        scale: View<'_>,
    ) {
        let rows = first..first + targets.len();
        let [max, sum] = [&self.max, &self.sum_exp].map(|stat| stat.view().slice(rows.clone()));
        let backend = rank.backend();
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

/// Returns `factor * weights`.
fn scaled(rank: &Rank, weights: &Arc<Buffer>, factor: f32) -> Arc<Buffer> {
    if factor == 1.0 {
        return Arc::clone(weights);
    }
    let mut scaled = rank.alloc_scratch(DType::F32, weights.len());
    rank.backend().cast(weights.view(), scaled.view_mut());
    rank.backend().scale(scaled.view_mut(), factor);
    Arc::new(scaled)
}

debug_layers! {
    CrossEntropy<V, Style>: ;
}
