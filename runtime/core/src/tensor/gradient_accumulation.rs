//! Gradients of a step as its losses are differentiated: together, one micro-batch after the other, or as forward
//! passes whose backward runs later.

use std::panic::Location;
use std::rc::Rc;

use crate::autograd::{LossFactor, NodeId, run_backward};
use crate::context::Rank;
use crate::fsdp::{BackwardPass, Unit};
use crate::layout::{AxisSet, Dims};

use super::loss_totals::LossTotals;
use super::terms::{Terms, common_factor};
use super::{Accumulating, Gradients, Pending};

impl<State> Gradients<State> {
    /// Begins the gradients of losses that are differentiated from `line` on, for the parameters of `units` if given.
    pub(super) fn begin(
        rank: Rank,
        units: Option<&[Rc<Unit>]>,
        line: &'static Location<'static>,
    ) -> Gradients<State> {
        let pass = BackwardPass::new(&rank, line, units);
        Gradients::new(rank, pass, LossTotals::default())
    }

    /// Returns the gradients, already in the buffers, of micro-batches that count `count` elements, still to be summed
    /// over `axes`.
    #[track_caller]
    #[doc(hidden)]
    pub fn of_latest_backward(rank: &Rank, axes: AxisSet, count: f64) -> Gradients<State> {
        let pass = BackwardPass::latest(rank, Location::caller());
        let totals = LossTotals::of_count(axes, AxisSet::NONE, count);
        Gradients::new(rank.with_whole_batch(), pass, totals)
    }

    /// Accumulates the gradient of a micro-batch that is not the last one.
    ///
    /// Losses of different shapes are pooled: the result is the gradient of the sum of all losses, divided by the
    /// number of elements that all of them count. [Weighted](super::Loss::weighted_over) losses are divided by their
    /// own counts.
    ///
    /// # Panics
    /// If another backward has overwritten these gradients.
    #[track_caller]
    pub fn accumulate(self, loss: impl MicroBatchLoss<State>) -> Gradients<State> {
        self.pass.check_valid();
        self.add(loss.into_terms(), false)
    }

    /// Accumulates the gradient of the last micro-batch, and starts the reduction of the gradient of each FSDP unit as
    /// soon as it is complete: once per step, or from ZeRO stage 2 on, where no rank keeps all of a gradient, once per
    /// micro-batch.
    ///
    /// # Panics
    /// If another backward has overwritten these gradients, and if a weighted loss has not counted what is announced.
    #[track_caller]
    pub fn backward(self, loss: impl MicroBatchLoss<State>) -> Gradients<Pending> {
        self.pass.check_valid();
        self.add(loss.into_terms(), true)
    }

    /// Runs the backward of losses, the last ones of the step or not.
    #[track_caller]
    pub(super) fn add<Next>(mut self, terms: Terms, last: bool) -> Gradients<Next> {
        self.rank.check_same(terms.rank());
        let factors = self.count_terms(&terms);
        if last {
            self.check_all_added();
        }
        let (roots, factor) = self.record_terms(terms, &factors, Location::caller());
        run_backward(&self.rank, &self.pass, roots, factor, last);
        self.with_state()
    }

    /// Adds the elements of losses to the counts of the step. Returns the factors of their sums in the buffers, whose
    /// own factor the first losses of a step determine.
    ///
    /// # Panics
    /// If one loss of the step has a weight, and another has none.
    #[track_caller]
    pub(super) fn count_terms(&mut self, terms: &Terms) -> Vec<f32> {
        let factors: Vec<f32> = terms.factors().into_iter().map(|factor| factor as f32).collect();
        if self.totals.counts.is_empty() {
            self.scale = common_factor(&factors);
        }
        for term in terms.iter() {
            self.totals.add(term);
        }
        factors.into_iter().map(|factor| factor / self.scale).collect()
    }

    /// Records the sums of losses, multiplied by `factors`, to be differentiated at `line`. Returns the operations that
    /// have computed them, and the factor that all of these have.
    #[track_caller]
    pub(super) fn record_terms(
        &mut self,
        terms: Terms,
        factors: &[f32],
        line: &'static Location<'static>,
    ) -> (Vec<NodeId>, LossFactor) {
        let (roots, factor, sum) = terms.record(factors, line);
        self.totals.sum = self.totals.sum.with(sum);
        (roots, factor)
    }

    /// Checks that weight gradients are not deferred, and that the losses have counted what is announced.
    #[track_caller]
    fn check_all_added(&self) {
        self.pass.check_no_deferred();
        self.totals.check_announced();
    }
}

impl Gradients<Accumulating> {
    /// Begins the gradients of a step that consists of [`ForwardPass`](super::ForwardPass)es: the backward of each adds
    /// to them.
    #[track_caller]
    pub fn of_passes(rank: &Rank) -> Gradients<Accumulating> {
        Gradients::begin(rank.with_whole_batch(), None, Location::caller())
    }

    /// Begins the gradients of a step whose losses, shaped `S`, are computed by one rank along the axes `along` only.
    #[track_caller]
    #[doc(hidden)]
    pub fn of_stages<S: Dims>(rank: &Rank, along: AxisSet) -> Gradients<Accumulating> {
        let mut gradients = Gradients::of_passes(rank);
        gradients.totals = LossTotals::of_count(S::VARIES, along, 0.0);
        gradients
    }

    /// Records the loss of a pass, and returns the operations that have computed it.
    #[track_caller]
    #[doc(hidden)]
    pub fn record_loss(&mut self, loss: impl PassLoss) -> Vec<NodeId> {
        let terms = loss.into_terms();
        let (factors, line) = (self.count_terms(&terms), self.pass.line());
        self.record_terms(terms, &factors, line).0
    }

    /// Returns the gradients after the last [`ForwardPass`](super::ForwardPass), with which all units were complete.
    ///
    /// # Panics
    /// If a unit was listed as complete with no pass, so that its gradient would not be reduced over the ranks, weight
    /// gradients were deferred and not computed, or a weighted loss has not counted what is announced.
    #[track_caller]
    pub fn complete(self) -> Gradients<Pending> {
        self.pass.check_valid();
        self.check_all_added();
        self.pass.check_complete();
        self.with_state()
    }

    /// Returns the backward pass whose units hold the gradients.
    #[doc(hidden)]
    pub fn backward_pass(&self) -> &Rc<BackwardPass> {
        &self.pass
    }
}

/// Losses of a micro-batch after the first one, whose gradients are added to those in `State`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to `{State}` gradients",
    label = "not the losses of another micro-batch",
    note = "the first of several micro-batches is `loss.accumulate()`, or of some units \
            `loss.only(&units).accumulate()`, the last one `gradients.backward(loss)`: after it the sum over the ranks \
            has begun, and no other can be added",
    note = "of weighted losses, each has the count of the step in every micro-batch: `a.weighted_over(1.0, &tokens)`; \
            losses without weights are divided by the count of all of them"
)]
pub trait MicroBatchLoss<State>: PassLoss {}

/// A loss of the output of a [`ForwardPass`](super::ForwardPass), or of another micro-batch: one without a weight, or a
/// weighted sum with the counts of the step.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a loss of a `ForwardPass`",
    label = "not a loss, or a weighted sum of losses with the counts of the step",
    note = "`Loss::mean_of(&terms)` is the loss of a tensor",
    note = "a step of several passes counts its elements first, and divides each loss by the count of the step: \
            `let tokens = StepCount::new(rank, own);`, `loss.weighted_over(1.0, &tokens)`"
)]
pub trait PassLoss {
    #[doc(hidden)]
    #[track_caller]
    fn into_terms(self) -> Terms;
}
