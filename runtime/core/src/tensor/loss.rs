//! Losses as ratios.

use std::marker::PhantomData;
use std::ops::Add;
use std::rc::Rc;

use crate::autograd::{Binary, Value};
use crate::fsdp::Unit;
use crate::layout::{Dims, SameShape};
use meshwright_mesh::__internal::local_len;

use super::combine::Combined;
use super::counting::{Counting, OfStep, Pooled};
use super::covers::Covers;
use super::reduce::{sum_of_elements, sum_over_targets};
use super::row_losses::{RowLosses, RowSums};
use super::terms::Terms;
use super::weights::sum_with_weights;
use super::{
    Accumulating, Gradients, HasValue, Mean, Metric, MicroBatchLoss, Objective, OnlyUnits, Operand,
    PassLoss, Pending, StepCount, Targets, Weights,
};

/// A mean over everything shaped `S` that counts: numerator and count of this rank, both still to be summed over the
/// axes over which `S` varies, and divided once after that.
#[must_use = "a loss does nothing until `.backward()`, and has no value until `.reduce()`"]
pub struct Loss<S> {
    /// One element: the sum over the elements of this rank.
    sum: Value,
    /// One element: the sum of this rank's penalties, such as auxiliary losses.
    penalty: Option<Value>,
    /// Number of elements on this rank, or the sum of their weights.
    count: f64,
    /// The losses of its rows, of each term, if they are kept.
    rows: Vec<RowLosses>,
    shape: PhantomData<S>,
}

impl<S: Dims> Loss<S> {
    pub(crate) fn new(sum: Value, count: u64) -> Loss<S> {
        Loss::of_weights(sum, count as f64)
    }

    /// Creates the loss of elements whose weights have this sum on this rank.
    fn of_weights(sum: Value, count: f64) -> Loss<S> {
        Loss { sum, penalty: None, count, rows: Vec::new(), shape: PhantomData }
    }

    /// Returns the loss with the losses of its rows, which its operation computes.
    pub(crate) fn with_rows(self, rows: Option<RowLosses>) -> Loss<S> {
        Loss { rows: rows.into_iter().collect(), ..self }
    }

    /// Creates the mean of `terms`: the sum over every element, divided by their number on all ranks.
    #[track_caller]
    pub fn mean_of<T: Operand<Shape = S>>(terms: &T) -> Loss<S> {
        let terms = terms.operand();
        Loss::new(sum_of_elements(terms.value()), local_len(terms.local_extents()) as u64)
    }

    /// Creates the mean of the `terms` whose target is not [`IGNORED`](crate::tensor::Targets::IGNORED): their sum,
    /// divided by their number on all ranks and, in a step, in all micro-batches. Terms that do not count are finite.
    ///
    /// With [`Targets::from_fn`](crate::tensor::Tokens::from_fn) or
    /// [`Targets::ignored_where`](crate::tensor::Tokens::ignored_where) it is a mean over any part of a tensor.
    ///
    /// # Panics
    /// If terms and targets have other sizes, or are of other micro-batches.
    #[track_caller]
    pub fn masked_mean_of<T: Operand<Shape = S>>(terms: &T, targets: &Targets<S>) -> Loss<S> {
        Loss::new(sum_over_targets(terms.operand(), targets), targets.target_count())
    }

    /// Creates the weighted mean of `terms`: the sum of each term times its weight, divided by the sum of the weights
    /// on all ranks and, in a step, in all micro-batches. Terms with weight 0 are finite. Products and their sum are
    /// f32, in bf16 too.
    ///
    /// Weights with fewer dims are those of all terms along the others: one for each sample, `Weights<(Batch,)>`,
    /// counts once for each of its tokens. A weight that the model computes multiplies the terms instead.
    ///
    /// # Panics
    /// If terms and weights have other sizes, or are of other micro-batches.
    #[track_caller]
    pub fn weighted_mean<T, W>(terms: &T, weights: &Weights<W>) -> Loss<S>
    where
        T: Operand<Shape = S>,
        W: Dims,
        S: SameShape<W>,
        Combined<S, W>: Covers<S>,
    {
        let (sum, total) = sum_with_weights(terms.operand(), weights);
        Loss::of_weights(sum, total)
    }

    /// Adds `terms`, one for each element of the loss, to what is differentiated, and not to the value of the loss: an
    /// auxiliary loss, such as the [load-balancing loss](crate::nn::TokenRouting::load_balancing_loss) of a router. The
    /// gradient is that of `(sum of the loss + sum of the terms) / count of the loss`.
    ///
    /// [`reduce`](Self::reduce) and [`metric`](Self::metric) return the loss without it. In a weighted sum of losses,
    /// which has one value, it counts as a part of the loss.
    #[track_caller]
    pub fn with_penalty<T: Operand<Shape = S>>(self, terms: &T) -> Loss<S> {
        let terms = terms.operand();
        self.sum.rank().check_same(terms.rank());
        let penalty = sum_of_both(&sum_of_elements(terms.value()), self.penalty.as_ref());
        Loss { penalty: Some(penalty), ..self }
    }

    /// Reduces the mean over all ranks: one small all-reduce.
    #[track_caller]
    pub fn reduce(&self) -> Mean {
        self.metric().reduce()
    }

    /// Returns the loss as a metric without gradient. A device is not waited for before the metric is reduced.
    #[track_caller]
    pub fn metric(&self) -> Metric<S> {
        let metric = Metric::of_buffer(self.sum.rank(), self.sum.compute().data, self.count);
        metric.with_rows(RowSums::of_terms(&self.rows))
    }

    /// Never compiles: a loss has no value before its sum and count are reduced over the ranks.
    #[doc(hidden)]
    pub fn value(&self) -> f64
    where
        Self: HasValue,
    {
        Self::never_implemented()
    }

    /// Computes the gradients of every parameter of the models that the loss depends on, and starts the reduction of
    /// the gradient of each FSDP unit over the ranks as soon as it is complete.
    ///
    /// The result is the gradient of the *sum*; [`Gradients::reduce`] divides by the count of all ranks. Operations
    /// that lead to other losses stay recorded; one that leads to both is used up by the first backward.
    ///
    /// # Panics
    /// If the models still hold gradients of another backward that were not reduced: micro-batches are accumulated by
    /// [`accumulate`](Self::accumulate).
    #[track_caller]
    pub fn backward(self) -> Gradients<Pending> {
        Objective::from(self).backward()
    }

    /// Computes the gradients of the first of several micro-batches: [`Gradients::accumulate`] and
    /// [`Gradients::backward`] take the others.
    ///
    /// # Panics
    /// As [`backward`](Self::backward).
    #[track_caller]
    pub fn accumulate(self) -> Gradients<Accumulating> {
        Objective::from(self).accumulate()
    }

    /// Limits the gradients to the parameters of `units`: they pass through other models, and leave nothing there.
    /// `loss.only(&generator.units).backward()` leaves the gradients of the discriminator alone.
    #[track_caller]
    pub fn only(self, units: &[Rc<Unit>]) -> OnlyUnits<'_, Pooled> {
        Objective::from(self).only(units)
    }

    /// Returns this loss and one of another shape, to be differentiated together: a penalty on activations, for
    /// example. For losses of one shape, `a + b` is the same.
    #[track_caller]
    pub fn and<T: Dims>(self, other: Loss<T>) -> Objective<Pooled> {
        Objective::from(self).and(other)
    }

    /// Returns the loss with a weight, as a term of a sum: the mean over all its elements times `weight`, which may be
    /// negative and is the same on all ranks. A loss that counts nothing on any rank is 0.
    ///
    /// # Panics
    /// If the weight is infinite or NaN.
    #[track_caller]
    pub fn weighted(self, weight: f32) -> Objective {
        Objective::of_terms(self.into_weighted_term(weight, Counting::OfBatch))
    }

    /// Returns the loss of a micro-batch with a weight, as a term of a sum: the mean over all elements of the step
    /// times `weight`, which is the same on all ranks. Each loss has a count of its own, also if two count the same
    /// elements.
    ///
    /// # Panics
    /// As [`weighted`](Self::weighted).
    #[track_caller]
    pub fn weighted_over(self, weight: f32, count: &StepCount<S>) -> Objective<OfStep> {
        Objective::of_terms(self.into_weighted_term(weight, Counting::OfStep(count.announced())))
    }

    #[track_caller]
    fn into_weighted_term(self, weight: f32, counting: Counting) -> Terms {
        let sum = sum_of_both(&self.sum, self.penalty.as_ref());
        Terms::of_sum::<S>(sum, self.count, weight, counting)
    }
}

/// The objective of one loss. Its sum is recorded now, and not only when it is differentiated.
impl<S: Dims> From<Loss<S>> for Objective<Pooled> {
    #[track_caller]
    fn from(loss: Loss<S>) -> Objective<Pooled> {
        let pooled = |sum, count| Terms::of_sum::<S>(sum, count, 1.0, Counting::Pooled);
        let mut terms = pooled(loss.sum, loss.count);
        if let Some(penalty) = loss.penalty {
            terms.append(pooled(penalty, 0.0));
        }
        terms.record_sums();
        Objective::of_terms(terms)
    }
}

impl Objective<Pooled> {
    /// Adds another loss.
    #[track_caller]
    pub fn and<T: Dims>(mut self, other: Loss<T>) -> Objective<Pooled> {
        self.terms.append(Objective::from(other).terms);
        self
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> PassLoss for Loss<S> {
    #[track_caller]
    fn into_terms(self) -> Terms {
        Objective::from(self).terms
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> MicroBatchLoss<Accumulating> for Loss<S> {}

/// A loss that can be added to one shaped `S`: one of the same shape.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a loss over `{S}`",
    label = "not a mean over the same things",
    note = "`a.and(b).backward()` differentiates losses of different shapes together: the sum of all their terms, \
            divided by the number of all terms",
    note = "the weighted sum of two means is `a.weighted(1.0) + b.weighted(0.1)`",
    note = "terms with further dims are reduced to one for each sample first: `Loss::mean_of(&terms.mean(Dim))`"
)]
pub trait AddsToLoss<S> {
    #[doc(hidden)]
    #[track_caller]
    fn add_to(self, left: Loss<S>) -> Loss<S>;
}

#[diagnostic::do_not_recommend]
impl<S: Dims> AddsToLoss<S> for Loss<S> {
    #[track_caller]
    fn add_to(self, left: Loss<S>) -> Loss<S> {
        left.sum.rank().check_same(self.sum.rank());
        let sum = sum_of_both(&left.sum, Some(&self.sum));
        let penalty = match &left.penalty {
            Some(penalty) => Some(sum_of_both(penalty, self.penalty.as_ref())),
            None => self.penalty,
        };
        // Those of one term would not be the losses of the sum.
        let rows = match (left.rows, self.rows) {
            (left, right) if left.is_empty() || right.is_empty() => Vec::new(),
            (left, right) => [left, right].concat(),
        };
        Loss { sum, penalty, count: left.count + self.count, rows, shape: PhantomData }
    }
}

/// Adds sums and counts: the mean over the elements of both.
impl<S: Dims, R: AddsToLoss<S>> Add<R> for Loss<S> {
    type Output = Loss<S>;

    #[track_caller]
    fn add(self, other: R) -> Loss<S> {
        other.add_to(self)
    }
}

/// Returns the sum of two sums of one element.
#[track_caller]
fn sum_of_both(left: &Value, right: Option<&Value>) -> Value {
    let Some(right) = right else { return left.clone() };
    let both = left.to_pointwise().binary(right.to_pointwise(), Binary::Add);
    Value::deferred(left.rank(), Vec::new(), both)
}
