//! Cross-entropy over a whole vocabulary, or vocabulary-parallel (also called vocab-parallel).

use std::marker::PhantomData;
use std::sync::Arc;

use crate::layout::{
    Axis, AxisSet, Dims, Ends, Feature, ModelAxis, OnEveryRank, Seal, Split, Whole,
};
use crate::tensor::{
    AlwaysRecomputed, Count, Extent, InBackward, Loss, Operand, Operands, Operation,
    OperationBackward, OperationForward, OperationInput, Rank, RowLosses, Targets, apply,
    begin_function, check_sizes, set_backward_location,
};
use meshwright_backend::{Buffer, DType};
use meshwright_comm::Site;

use super::debug::debug_layers;
use super::logit_stats::{LogitRows, Stats};
use super::{Build, Builder, HeadOptions, Plain, Shard, VocabSplit};

/// Mean of `-log softmax(logits)[target]` over the tokens whose target is not ignored.
///
/// Shape: logits `[.., V]` and targets `[..]` to a loss.
///
/// With `#[sharded(tp = "vocab")]` the vocabulary of the logits is split: the ranks exchange a maximum, a sum of
/// exponentials and the target's logit for each token, never the logits.
///
/// [`HeadOptions`] add label smoothing and a z-loss.
pub struct CrossEntropy<V, Style = Plain> {
    site: Site,
    options: HeadOptions,
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
        let options = self.options;
        LogitRows { rank, axes, site: &self.site, vocab, options }.check_targets(targets);
        let row_losses = RowLosses::of_targets(targets);
        let operation = CrossEntropyOperation {
            site: self.site.clone(),
            axes,
            vocab,
            options,
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
    options: HeadOptions,
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
        let (axes, options) = (self.axes, self.options);
        let rows = LogitRows { rank, axes, site: &self.site, vocab: self.vocab, options };
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
        let rows = LogitRows {
            rank,
            axes: self.axes,
            site: &self.site,
            vocab: self.vocab,
            options: self.options,
        };
        stats.differentiate(&rows, 0, logits, self.ids.view(), scale.view());
        x.add_gradient(gradients, gradient.into());
    }
}

impl<V: Whole> Build for CrossEntropy<V, Plain>
where
    V::Home: OnEveryRank<V>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let options = builder.head_options().of_given_logits();
        CrossEntropy { site: builder.site(), options, kind: PhantomData }
    }
}

impl<V: Whole, A: ModelAxis> Build for CrossEntropy<V, VocabSplit<A>>
where
    V::Home: OnEveryRank<V>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let options = builder.head_options().of_given_logits();
        CrossEntropy { site: builder.site(), options, kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<V, A> Shard<VocabSplit<A>> for CrossEntropy<V> {
    type Sharded = CrossEntropy<V, VocabSplit<A>>;
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
