//! Objectives: losses that are differentiated together, pooled or each with a weight.

use std::marker::PhantomData;
use std::ops::{Add, AddAssign};
use std::panic::Location;
use std::rc::Rc;

use crate::fsdp::Unit;

use super::counting::{CountsEach, CountsStep, OfBatch};
use super::terms::Terms;
use super::{Accumulating, Gradients, HasValue, MicroBatchLoss, PassLoss, Pending};

/// Losses that are differentiated together, counted as `Of` states:
///
/// - [`Pooled`](super::Pooled) is one mean over everything that any of the losses counts: `tokens.and(penalty)`;
/// - [`OfBatch`] and [`OfStep`](super::OfStep) are weighted sums, each loss the mean over its own elements on all
///   ranks: `tokens.weighted(1.0) + penalty.weighted(0.01)`.
#[must_use = "an objective does nothing until `.backward()`"]
pub struct Objective<Of = OfBatch> {
    pub(super) terms: Terms,
    of: PhantomData<Of>,
}

impl<Of> Objective<Of> {
    pub(super) fn of_terms(terms: Terms) -> Objective<Of> {
        Objective { terms, of: PhantomData }
    }

    /// Computes the gradients of all losses, as [`Loss::backward`](super::Loss::backward) does for one. In a weighted
    /// sum each loss is divided by its count on all ranks: no factor is left to the caller.
    ///
    /// Counts [of the batch](OfBatch) are summed over the ranks first: one small all-reduce for each set of axes along
    /// which losses vary.
    ///
    /// # Panics
    /// As [`Loss::backward`](super::Loss::backward), and if a loss has not counted what is announced.
    #[track_caller]
    pub fn backward(self) -> Gradients<Pending> {
        self.differentiate(None, true)
    }

    /// Computes the gradients of the first of several micro-batches, as [`Loss::accumulate`](super::Loss::accumulate)
    /// does for one loss. Losses with weights are divided by their counts in the step.
    ///
    /// # Panics
    /// As [`Loss::backward`](super::Loss::backward).
    #[track_caller]
    pub fn accumulate(self) -> Gradients<Accumulating<Of>>
    where
        Of: CountsStep,
    {
        self.differentiate(None, false)
    }

    /// Limits the gradients to the parameters of `units`, as [`Loss::only`](super::Loss::only).
    pub fn only(self, units: &[Rc<Unit>]) -> OnlyUnits<'_, Of> {
        OnlyUnits { objective: self, units }
    }

    #[track_caller]
    fn differentiate<State>(self, units: Option<&[Rc<Unit>]>, last: bool) -> Gradients<State> {
        let rank = self.terms.rank().with_whole_batch();
        Gradients::<State>::begin(rank, units, Location::caller()).add(self.terms, last)
    }

    /// Reduces the weighted sum over all ranks, and returns its value: at most two small all-reduces for each set of
    /// axes along which losses vary. Of a micro-batch it is the part of the step's.
    #[track_caller]
    pub fn reduce(&self) -> WeightedSum
    where
        Of: CountsEach,
    {
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

#[diagnostic::do_not_recommend]
impl<Of: CountsStep> PassLoss for Objective<Of> {
    fn into_terms(self) -> Terms {
        self.terms
    }
}

#[diagnostic::do_not_recommend]
impl<Of: CountsStep> MicroBatchLoss<Accumulating<Of>> for Objective<Of> {}

/// Objective of some units: [`Objective::only`].
#[must_use = "an objective does nothing until `.backward()`"]
pub struct OnlyUnits<'a, Of> {
    objective: Objective<Of>,
    units: &'a [Rc<Unit>],
}

impl<Of> OnlyUnits<'_, Of> {
    /// Computes the gradients of the parameters of the units, as [`Objective::backward`].
    ///
    /// # Panics
    /// As [`Objective::backward`].
    #[track_caller]
    pub fn backward(self) -> Gradients<Pending> {
        self.objective.differentiate(Some(self.units), true)
    }

    /// Computes the gradients of the parameters of the units, as [`Objective::accumulate`]. Later micro-batches have
    /// the same units.
    ///
    /// # Panics
    /// As [`Loss::backward`](super::Loss::backward).
    #[track_caller]
    pub fn accumulate(self) -> Gradients<Accumulating<Of>>
    where
        Of: CountsStep,
    {
        self.objective.differentiate(Some(self.units), false)
    }
}

/// A term of a weighted sum: another one with counts of the same kind.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a weighted sum of losses",
    label = "not a weighted loss whose count is of the same kind",
    note = "each loss takes its weight first: `a.weighted(1.0) + b.weighted(0.1)`",
    note = "with several micro-batches, each loss takes the count of the step, too: \
            `a.weighted_over(1.0, &tokens) + b.weighted_over(0.1, &samples)`"
)]
pub trait AddsToObjective<Of> {
    #[doc(hidden)]
    fn into_terms(self) -> Terms;
}

#[diagnostic::do_not_recommend]
impl<Of: CountsEach> AddsToObjective<Of> for Objective<Of> {
    fn into_terms(self) -> Terms {
        self.terms
    }
}

impl<Of, R: AddsToObjective<Of>> Add<R> for Objective<Of> {
    type Output = Objective<Of>;

    #[track_caller]
    fn add(mut self, other: R) -> Objective<Of> {
        self += other;
        self
    }
}

impl<Of, R: AddsToObjective<Of>> AddAssign<R> for Objective<Of> {
    #[track_caller]
    fn add_assign(&mut self, other: R) {
        self.terms.append(other.into_terms());
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
