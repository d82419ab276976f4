//! Losses as ratios.

use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Sub};
use std::panic::Location;
use std::rc::Rc;

use crate::autograd::{Binary, Value};
use crate::fsdp::Unit;
use crate::layout::Dims;
use meshwright_mesh::__internal::local_len;

use super::counted_terms::terms_of_targets;
use super::losses::Losses;
use super::never_applies::never_applies;
use super::reduce::sum_of_elements;
use super::{Accumulating, Gradients, HasValue, Mean, Metric, Operand, Pending, Targets};

/// A mean over everything shaped `S` that counts: numerator and count of this rank, both still to be summed over the
/// axes over which `S` varies, and divided once after that.
#[must_use = "a loss does nothing until `.backward()`, and has no value until `.reduce()`"]
pub struct Loss<S> {
    /// One element: the sum over the elements of this rank.
    sum: Value,
    /// One element: the sum of this rank's penalties, such as auxiliary losses.
    penalty: Option<Value>,
    count: u64,
    shape: PhantomData<S>,
}

impl<S: Dims> Loss<S> {
    pub(crate) fn new(sum: Value, count: u64) -> Loss<S> {
        Loss { sum, penalty: None, count, shape: PhantomData }
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
        let counted = terms_of_targets(terms.operand(), targets);
        Loss::new(sum_of_elements(counted.value()), targets.target_count())
    }

    /// Returns the number of elements that this rank counts.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum, with the penalties, and the count.
    pub(super) fn into_sum_and_count(self) -> (Value, u64) {
        let sum = match &self.penalty {
            Some(penalty) => sum_of_both(&self.sum, penalty),
            None => self.sum,
        };
        (sum, self.count)
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
        let own = sum_of_elements(terms.value());
        let penalty = match &self.penalty {
            Some(penalty) => sum_of_both(penalty, &own),
            None => own,
        };
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
        Metric::of_buffer(self.sum.rank(), self.sum.compute().data, self.count)
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
        Losses::from(self).backward()
    }

    /// [`backward`](Self::backward) for the parameters of `units` only: gradients pass through other models, and leave
    /// nothing there. `loss.backward_for(&generator.units)` leaves the gradients of the discriminator alone.
    ///
    /// # Panics
    /// As [`backward`](Self::backward).
    #[track_caller]
    pub fn backward_for(self, units: &[Rc<Unit>]) -> Gradients<Pending> {
        Losses::from(self).backward_for(units)
    }

    /// Computes the gradients of the first of several micro-batches: [`Gradients::accumulate`] and
    /// [`Gradients::backward`] take the others.
    ///
    /// # Panics
    /// As [`backward`](Self::backward).
    #[track_caller]
    pub fn accumulate(self) -> Gradients<Accumulating> {
        Losses::from(self).accumulate()
    }

    /// [`accumulate`](Self::accumulate) for the parameters of `units` only, as [`backward_for`](Self::backward_for).
    ///
    /// # Panics
    /// As [`backward`](Self::backward).
    #[track_caller]
    pub fn accumulate_for(self, units: &[Rc<Unit>]) -> Gradients<Accumulating> {
        Losses::from(self).accumulate_for(units)
    }

    /// Returns this loss and one of another shape, to be differentiated together: a penalty on activations, for
    /// example. For losses of one shape, `a + b` is the same.
    #[track_caller]
    pub fn and<T: Dims>(self, other: Loss<T>) -> Losses {
        Losses::from(self).and(other)
    }
}

impl<S: Dims> From<Loss<S>> for Losses {
    #[track_caller]
    fn from(loss: Loss<S>) -> Losses {
        let losses = Losses::of_sum(&loss.sum, S::VARIES, loss.count);
        match &loss.penalty {
            Some(penalty) => losses.merge_losses(Losses::of_sum(penalty, S::VARIES, 0)),
            None => losses,
        }
    }
}

impl Losses {
    /// Adds another loss.
    #[track_caller]
    pub fn and<T: Dims>(self, other: Loss<T>) -> Losses {
        self.merge_losses(Losses::from(other))
    }

    /// Computes the gradients of all of the losses, as [`Loss::backward`] does for one.
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn backward(self) -> Gradients<Pending> {
        Gradients::begin_backward(&self, None, Location::caller()).add(self, true)
    }

    /// [`backward`](Self::backward) for the parameters of `units` only, as [`Loss::backward_for`].
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn backward_for(self, units: &[Rc<Unit>]) -> Gradients<Pending> {
        Gradients::begin_backward(&self, Some(units), Location::caller()).add(self, true)
    }

    /// Computes the gradients of the first of several micro-batches, as [`Loss::accumulate`].
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn accumulate(self) -> Gradients<Accumulating> {
        Gradients::begin_backward(&self, None, Location::caller()).add(self, false)
    }

    /// [`accumulate`](Self::accumulate) for the parameters of `units` only, as [`Loss::backward_for`].
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn accumulate_for(self, units: &[Rc<Unit>]) -> Gradients<Accumulating> {
        Gradients::begin_backward(&self, Some(units), Location::caller()).add(self, false)
    }
}

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
        let sum = sum_of_both(&left.sum, &self.sum);
        let penalty = match (left.penalty, self.penalty) {
            (Some(left), Some(right)) => Some(sum_of_both(&left, &right)),
            (penalty, None) | (None, penalty) => penalty,
        };
        Loss { sum, penalty, count: left.count + self.count, shape: PhantomData }
    }
}

/// Returns the sum of two sums of one element.
#[track_caller]
fn sum_of_both(left: &Value, right: &Value) -> Value {
    let both = left.to_pointwise().binary(right.to_pointwise(), Binary::Add);
    Value::deferred(left.rank(), Vec::new(), both)
}

/// Adds sums and counts: the mean over the elements of both.
impl<S: Dims, R: AddsToLoss<S>> Add<R> for Loss<S> {
    type Output = Loss<S>;

    #[track_caller]
    fn add(self, other: R) -> Loss<S> {
        other.add_to(self)
    }
}

/// Never implemented: a factor of a loss.
#[diagnostic::on_unimplemented(
    message = "a loss cannot be scaled by hand",
    label = "this is a sum and a count, divided once, after both are summed over the ranks",
    note = "the weighted sum of several losses, each a mean over its own elements, is `a.weighted(1.0) + \
            b.weighted(0.1)`",
    note = "a factor of the only loss belongs to the learning rate, and a sign to the terms: `Loss::mean_of(&-terms)`",
    note = "add up the losses of micro-batches: `a + b` is the mean over both"
)]
pub trait ScalesLoss {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

never_applies! {
    <S> Loss<S>, ScalesLoss:
    Mul mul;
    Div div;
    Sub sub;
}

/// Never applies; the message of its bound explains why.
impl<S> Mul<Loss<S>> for f32
where
    Loss<S>: ScalesLoss,
{
    type Output = Loss<S>;

    fn mul(self, _: Loss<S>) -> Loss<S> {
        Loss::<S>::never_implemented()
    }
}
