//! Weighted sums of losses, each a mean over its own elements.

mod operators;
mod terms;

use std::marker::PhantomData;
use std::ops::AddAssign;
use std::panic::Location;
use std::rc::Rc;

use crate::fsdp::Unit;
use crate::layout::{Dims, Seal};

use super::step_count::AnnouncedCount;
use super::{Accumulating, Gradients, HasValue, Loss, Losses, MicroBatchLoss, Pending, StepCount};
use terms::Terms;

pub use operators::{AddsToObjective, ScalesObjective};

/// Losses of an [`Objective`] are divided by their counts in the batch that is differentiated.
#[derive(Debug)]
pub struct OfBatch;

/// Losses of an [`Objective`] are divided by their counts in the step; the batch is one of its micro-batches.
#[derive(Debug)]
pub struct OfStep;

/// A weighted sum of losses, each of them the mean over its own elements on all ranks:
/// `tokens.weighted(1.0) + penalty.weighted(0.01)`. `Of` states which elements are counted: [`OfBatch`] or [`OfStep`].
///
/// One mean over the elements of several losses is [`Loss::and`].
#[must_use = "an objective does nothing until `.backward()`"]
pub struct Objective<Of = OfBatch> {
    terms: Terms,
    /// The counts of the terms, if they are announced, and their elements on this rank.
    counts: Vec<(Rc<AnnouncedCount>, u64)>,
    of: PhantomData<Of>,
}

impl<S: Dims> Loss<S> {
    /// Returns the loss with a weight, as a term of a sum: the mean over all its elements times `weight`, which may be
    /// negative and is the same on all ranks. A loss that counts nothing on any rank is 0.
    ///
    /// # Panics
    /// If the weight is infinite or NaN.
    #[track_caller]
    pub fn weighted(self, weight: f32) -> Objective {
        let terms = Terms::of_loss(self, weight, None);
        Objective { terms, counts: Vec::new(), of: PhantomData }
    }

    /// Returns the loss of a micro-batch with a weight, as a term of a sum: the mean over all elements of the step
    /// times `weight`, which is the same on all ranks. Each loss has a count of its own, also if two count the same
    /// elements.
    ///
    /// # Panics
    /// As [`weighted`](Self::weighted).
    #[track_caller]
    pub fn weighted_over(self, weight: f32, count: &StepCount<S>) -> Objective<OfStep> {
        let counts = vec![(count.announced(), self.count())];
        let terms = Terms::of_loss(self, weight, Some(counts[0].0.total()));
        Objective { terms, counts, of: PhantomData }
    }
}

impl<Of> Objective<Of> {
    /// Computes the gradients of the weighted sum, as [`Loss::backward`] does for a loss, and divides each loss by its
    /// count on all ranks: no factor is left to the caller.
    ///
    /// Counts that are not announced are summed over the ranks first: one small all-reduce for each set of axes along
    /// which losses vary.
    ///
    /// # Panics
    /// As [`Loss::backward`], and if a loss has not counted what is announced.
    #[track_caller]
    pub fn backward(self) -> Gradients<Pending> {
        self.backward_of(None)
    }

    /// [`backward`](Self::backward) for the parameters of `units` only, as [`Loss::backward_for`].
    ///
    /// # Panics
    /// As [`backward`](Self::backward).
    #[track_caller]
    pub fn backward_for(self, units: &[Rc<Unit>]) -> Gradients<Pending> {
        self.backward_of(Some(units))
    }

    #[track_caller]
    fn backward_of(self, units: Option<&[Rc<Unit>]>) -> Gradients<Pending> {
        for (count, elements) in &self.counts {
            count.add_counted(*elements);
        }
        for (count, _) in &self.counts {
            count.check_complete();
        }
        let (gradients, losses) = self.terms.begin_backward(units);
        gradients.add(losses, true)
    }

    /// Computes the gradients of the first of several micro-batches, whose losses are divided by their counts in the
    /// step.
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn accumulate(self) -> Gradients<AccumulatingObjective>
    where
        Of: CountsStep,
    {
        self.accumulate_of(None)
    }

    /// [`accumulate`](Self::accumulate) for the parameters of `units` only, as [`Loss::backward_for`].
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn accumulate_for(self, units: &[Rc<Unit>]) -> Gradients<AccumulatingObjective>
    where
        Of: CountsStep,
    {
        self.accumulate_of(Some(units))
    }

    #[track_caller]
    fn accumulate_of(self, units: Option<&[Rc<Unit>]>) -> Gradients<AccumulatingObjective> {
        let (mut gradients, losses) = self.terms.begin_backward(units);
        gradients.totals.announce(self.counts);
        gradients.add(losses, false)
    }

    /// Reduces the weighted sum over all ranks, and returns its value: at most two small all-reduces for each set of
    /// axes along which losses vary. Of a micro-batch it is the part of the step's.
    #[track_caller]
    pub fn reduce(&self) -> WeightedSum {
        WeightedSum { value: self.terms.reduce() }
    }

    /// Never compiles: a weighted sum has no value before the losses are reduced over the ranks.
    #[doc(hidden)]
    pub fn value(&self) -> f64
    where
        Self: HasValue,
    {
        Self::never_implemented()
    }
}

impl Objective<OfStep> {
    /// Computes the sums of the losses, which are recorded now.
    #[track_caller]
    pub(super) fn compute_sums(&self) {
        self.terms.compute_sums();
    }

    /// Begins the backward of a [`ForwardPass`](super::ForwardPass), whose gradients are added to `gradients`. Returns
    /// the factor of the numbers in the buffers, which the first pass determines.
    ///
    /// # Panics
    /// If the gradients belong to losses without weights.
    #[track_caller]
    pub(super) fn begin_pass(&self, gradients: &mut Gradients<Accumulating>) -> f32 {
        if gradients.totals.begin_weighted() {
            gradients.set_factor(self.terms.common_factor());
        }
        gradients.totals.announce(self.counts.clone());
        gradients.factor()
    }

    /// Returns the losses, divided by `factor`, which are differentiated at `line`.
    pub(super) fn into_losses(self, factor: f32, line: &'static Location<'static>) -> Losses {
        self.terms.into_losses(factor, line)
    }
}

/// A weighted sum of losses on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WeightedSum {
    value: f64,
}

impl WeightedSum {
    /// Returns the sum: each loss is the mean over its own elements, times its weight.
    pub fn value(&self) -> f64 {
        self.value
    }
}

/// Adds the part of another micro-batch, whose losses are divided by their counts in the step, too.
impl AddAssign for WeightedSum {
    fn add_assign(&mut self, other: WeightedSum) {
        self.value += other.value;
    }
}

/// State of gradients of an [`Objective`] of a step during gradient accumulation: further micro-batches follow.
#[derive(Debug)]
pub struct AccumulatingObjective;

#[diagnostic::do_not_recommend]
impl MicroBatchLoss<AccumulatingObjective> for Objective<OfStep> {
    #[track_caller]
    fn add_to(
        self,
        mut gradients: Gradients<AccumulatingObjective>,
        last: bool,
    ) -> Gradients<Accumulating> {
        gradients.totals.announce(self.counts);
        if last {
            gradients.totals.check_announced();
        }
        let losses = self.terms.into_losses(gradients.factor(), Location::caller());
        gradients.with_state::<Accumulating>().add(losses, last)
    }
}

/// Counts of a step: [`OfStep`].
#[diagnostic::on_unimplemented(
    message = "weighted losses with counts of one micro-batch cannot be accumulated",
    label = "each loss would be divided by the count of its micro-batch, not of the step",
    note = "count the step first, and divide each loss by it: `let tokens = StepCount::new(rank, own);`, \
            `loss.weighted_over(1.0, &tokens)`"
)]
pub trait CountsStep {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl CountsStep for OfStep {
    const SEAL: Seal = Seal::new();
}
