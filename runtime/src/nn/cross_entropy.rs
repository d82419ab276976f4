//! Cross-entropy of logits: over a whole vocabulary, or one split over an axis.

use std::marker::PhantomData;

use crate::backend::{Buffer, DType, View, ViewMut};
use crate::comm::{ReduceOp, Site};
use crate::layout::{Axis, AxisSet, Ends, Feature, Shape, Split, Whole};
use crate::tensor::{Extent, Loss, NodeId, Operand, Rank, Targets, Value};

use super::{Build, Builder, Plain, Shard, VocabSplit};

/// `-log softmax(logits)[target]`, averaged over the tokens whose target counts.
///
/// `#[sharded(tp = "vocab")]` takes logits whose vocabulary is split: the ranks exchange a maximum, a sum and the
/// target's logit for each token, never the logits.
pub struct CrossEntropy<V, Style = Plain> {
    site: Site,
    kind: PhantomData<(V, Style)>,
}

/// Logits that a cross-entropy over vocabulary `V` in style `Style` takes.
#[diagnostic::on_unimplemented(
    message = "this cross-entropy over `{V}` cannot take logits shaped `{Self}`",
    label = "`{V}` is not the last dim, or not split as the loss expects",
    note = "head and loss go together: `#[sharded(tp = \"vocab\")]` on the `CrossEntropy` where the logits are split over `{V}`, and on neither where they are whole"
)]
pub trait LogitsOf<V, Style>: Shape {
    /// The shape of the targets.
    type Lead: Shape;
    /// The axes over which the vocabulary is split.
    const VOCAB_AXES: AxisSet;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<V>, V: Whole> LogitsOf<V, Plain> for X
where
    X::Lead: Shape,
{
    type Lead = X::Lead;
    const VOCAB_AXES: AxisSet = AxisSet::NONE;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<Split<V, A>>, V: Whole, A: Axis> LogitsOf<V, VocabSplit<A>> for X
where
    X::Lead: Shape,
    Split<V, A>: Feature,
{
    type Lead = X::Lead;
    const VOCAB_AXES: AxisSet = A::AXES;
}

impl<V: Whole, Style> CrossEntropy<V, Style> {
    /// The loss of `logits` shaped `[.., V]` for targets shaped `[..]`.
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
        let vocab = x.extents()[x.extents().len() - 1];
        let ready = x.compute();
        let rows = Rows { rank, axes: T::Shape::VOCAB_AXES, site: &self.site, vocab };
        let target_ids = targets.ids().clone();
        let stats = rows.stats(ready.data.view(), target_ids.typed());
        let (sum, count) = stats.loss(target_ids.typed());
        let node = ready.node.map(|source| {
            rank.tape().record(move |gradients, seed| {
                let mut gradient = gradients.unique(ready.data);
                let (targets, seed) = (target_ids.typed(), seed.typed::<f32>()[0]);
                stats.differentiate(gradients.rank, vocab, targets, seed, gradient.view_mut());
                gradients.add(source, gradient.into());
            })
        });
        Loss::new(scalar(rank, sum, node), count)
    }
}

impl<V: Whole, Style> Build for CrossEntropy<V, Style> {
    fn build(builder: &mut Builder<'_>) -> Self {
        CrossEntropy { site: builder.site(), kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<V, A> Shard<VocabSplit<A>> for CrossEntropy<V> {
    type Sharded = CrossEntropy<V, VocabSplit<A>>;
}

/// Rows of logits, of which this rank holds some columns.
pub(super) struct Rows<'a> {
    pub(super) rank: &'a Rank,
    pub(super) axes: AxisSet,
    pub(super) site: &'a Site,
    /// Columns of the vocabulary: those of this rank, where they begin, and all of them.
    pub(super) vocab: Extent,
}

/// What the ranks that share a vocabulary know of each row.
pub(super) struct Stats {
    max: Buffer,
    sum_exp: Buffer,
    target_logit: Buffer,
}

impl Rows<'_> {
    /// Maximum, sum of exponentials and the target's logit of each row, over all ranks of the vocabulary.
    ///
    /// # Panics
    /// When a target that counts is beyond the vocabulary.
    pub(super) fn stats(&self, logits: View<'_>, targets: &[u32]) -> Stats {
        // Beyond the vocabulary there is no rank that would hold the logit.
        let counts = |target: &&u32| **target != Targets::<()>::IGNORED;
        let beyond = |target: &&u32| **target as usize >= self.vocab.global;
        if let Some(target) = targets.iter().filter(counts).find(beyond) {
            let (site, vocab) = (self.site, self.vocab.global);
            panic!("`{site}`: target id {target} is beyond the vocabulary of {vocab}");
        }
        let rows = targets.len();
        let backend = self.rank.backend();
        let mut max = self.rank.stats(rows);
        backend.row_max(self.vocab.local, logits, max.view_mut());
        self.rank.all_reduce(self.axes, self.site, ReduceOp::Max, max.view_mut());
        let (mut sum_exp, mut target_logit) = (self.rank.stats(rows), self.rank.stats(rows));
        backend.exp_sum(
            self.vocab.local,
            logits,
            max.view(),
            targets.into(),
            self.vocab.offset,
            sum_exp.view_mut(),
            target_logit.view_mut(),
        );
        self.rank.all_reduce(self.axes, self.site, ReduceOp::Sum, sum_exp.view_mut());
        self.rank.all_reduce(self.axes, self.site, ReduceOp::Sum, target_logit.view_mut());
        Stats { max, sum_exp, target_logit }
    }
}

impl Stats {
    /// Turns this rank's logits into their gradient times `scale`, where targets count.
    pub(super) fn differentiate(
        &self,
        rank: &Rank,
        vocab: Extent,
        targets: &[u32],
        scale: f32,
        logits: ViewMut<'_>,
    ) {
        rank.backend().cross_entropy_grad(
            vocab.local,
            logits,
            self.max.view(),
            self.sum_exp.view(),
            targets.into(),
            vocab.offset,
            row_scale(rank, targets, scale).view(),
        );
    }

    /// Sum of the losses of the rows that count, and their number.
    pub(super) fn loss(&self, targets: &[u32]) -> (f64, u64) {
        let rows = self
            .max
            .typed::<f32>()
            .iter()
            .zip(self.sum_exp.typed::<f32>())
            .zip(self.target_logit.typed::<f32>());
        let mut sum = 0.0;
        let mut count = 0;
        for (((max, sum_exp), logit), target) in rows.zip(targets) {
            if *target != Targets::<()>::IGNORED {
                sum += f64::from(*max) + f64::from(*sum_exp).ln() - f64::from(*logit);
                count += 1;
            }
        }
        (sum, count)
    }
}

/// What each row's gradient is multiplied by: nothing of a row whose target does not count.
fn row_scale(rank: &Rank, targets: &[u32], scale: f32) -> Buffer {
    let mut rows = rank.scratch(DType::F32, targets.len());
    for (row, target) in rows.typed_mut::<f32>().iter_mut().zip(targets) {
        *row = if *target == Targets::<()>::IGNORED { 0.0 } else { scale };
    }
    rows
}

/// A value of one element.
pub(super) fn scalar(rank: &Rank, value: f64, node: Option<NodeId>) -> Value {
    let mut buffer = rank.stats(1);
    buffer.typed_mut::<f32>()[0] = value as f32;
    Value::ready(rank, Vec::new(), buffer, node)
}
