//! Losses as ratios.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::MiddleDim;
use crate::layout::{AxisSet, Dims};

use super::pointwise::Binary;
use super::tape::NodeId;
use super::value::Value;
use super::{Accumulating, Gradients, HasValue, Mean, Metric, Operand, Pending, Rank, Unit};

/// A mean over everything shaped `S` that counts: numerator and count of this rank, both still to be summed over the
/// axes over which `S` varies, and divided once after that.
#[must_use = "a loss does nothing until `.backward()`, and has no value until `.reduce()`"]
pub struct Loss<S> {
    /// One element: the sum over what this rank holds.
    sum: Value,
    count: u64,
    shape: PhantomData<S>,
}

impl<S: Dims> Loss<S> {
    pub(crate) fn new(sum: Value, count: u64) -> Loss<S> {
        Loss { sum, count, shape: PhantomData }
    }

    /// A loss that is the mean of `terms`: the sum over every element, divided by their number on all ranks.
    #[track_caller]
    pub fn mean_of<T: Operand<Shape = S>>(terms: &T) -> Loss<S> {
        let terms = terms.operand();
        let ready = terms.value().compute();
        let rank = terms.rank();
        let len = ready.data.len();
        let mut sum = rank.stats(1);
        rank.backend().sum_dim(
            MiddleDim { outer: 1, len, inner: 1 },
            ready.data.view(),
            sum.view_mut(),
            1.0,
        );
        let node = ready.node.map(|source| {
            rank.tape().record(move |gradients, dy| {
                let mut dx = gradients.rank.alloc(len);
                gradients.rank.backend().broadcast_dim(
                    MiddleDim { outer: 1, len, inner: 1 },
                    dy.view(),
                    dx.view_mut(),
                    1.0,
                );
                gradients.add(&source, Arc::new(dx));
            })
        });
        Loss::new(Value::ready(rank, Vec::new(), sum, node), len as u64)
    }

    /// The mean over all ranks: one small all-reduce.
    #[track_caller]
    pub fn reduce(&self) -> Mean {
        self.metric().reduce()
    }

    /// The loss as a metric, which nothing is differentiated through. A device is not waited for before the metric is
    /// reduced.
    #[track_caller]
    pub fn metric(&self) -> Metric<S> {
        Metric::of_buffer(self.sum.rank(), self.sum.compute().data, self.count)
    }

    /// A loss has no value before its sum and count are summed over the ranks; this never compiles, and says so.
    #[doc(hidden)]
    pub fn value(&self) -> f64
    where
        Self: HasValue,
    {
        Self::never()
    }

    /// Computes the gradients of every parameter of the models that the loss depends on, and starts summing the gradient of
    /// each unit over the ranks as soon as it is complete.
    ///
    /// The result is the gradient of the *sum*; [`Gradients::reduce`] divides by the count of all ranks. Operations that
    /// lead to other losses stay recorded; one that leads to both is used up by the first backward.
    ///
    /// # Panics
    /// When the models still hold gradients of another backward that were not reduced: micro-batches are added up by
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

    /// This loss and one of another shape, to be differentiated together: a penalty on what the loss is computed from.
    /// Of losses of one shape, `a + b` is the same.
    #[track_caller]
    pub fn and<T: Dims>(self, other: Loss<T>) -> Losses {
        Losses::from(self).and(other)
    }
}

/// Losses of different shapes that are differentiated together: the mean over everything that any of them counts.
#[must_use = "losses do nothing until `.backward()`"]
pub struct Losses {
    rank: Rank,
    /// The recorded operations that have computed the sums.
    roots: Vec<NodeId>,
    /// Elements that the losses count on this rank, by the axes over which the counts are still to be summed.
    counts: BTreeMap<AxisSet, u64>,
}

impl<S: Dims> From<Loss<S>> for Losses {
    #[track_caller]
    fn from(loss: Loss<S>) -> Losses {
        let roots = loss.sum.recorded_node().into_iter().collect();
        let counts = BTreeMap::from([(S::VARIES, loss.count)]);
        Losses { rank: loss.sum.rank().with_whole_batch(), roots, counts }
    }
}

impl Losses {
    /// These losses and another one.
    #[track_caller]
    pub fn and<T: Dims>(mut self, other: Loss<T>) -> Losses {
        let other = Losses::from(other);
        self.rank.check_same(&other.rank);
        self.roots.extend(other.roots);
        for (axes, count) in other.counts {
            *self.counts.entry(axes).or_default() += count;
        }
        self
    }

    /// Computes the gradients of all of the losses, as [`Loss::backward`] does for one.
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn backward(self) -> Gradients<Pending> {
        Gradients::begin(&self, None, Location::caller()).add(self, true)
    }

    /// [`backward`](Self::backward) for the parameters of `units` only, as [`Loss::backward_for`].
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn backward_for(self, units: &[Rc<Unit>]) -> Gradients<Pending> {
        Gradients::begin(&self, Some(units), Location::caller()).add(self, true)
    }

    /// Computes the gradients of the first of several micro-batches, as [`Loss::accumulate`].
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn accumulate(self) -> Gradients<Accumulating> {
        Gradients::begin(&self, None, Location::caller()).add(self, false)
    }

    /// [`accumulate`](Self::accumulate) for the parameters of `units` only, as [`Loss::backward_for`].
    ///
    /// # Panics
    /// As [`Loss::backward`].
    #[track_caller]
    pub fn accumulate_for(self, units: &[Rc<Unit>]) -> Gradients<Accumulating> {
        Gradients::begin(&self, Some(units), Location::caller()).add(self, false)
    }

    pub(super) fn rank(&self) -> &Rank {
        &self.rank
    }

    /// The recorded operations that have computed the sums, and the elements that they count.
    pub(super) fn into_parts(self) -> (Vec<NodeId>, BTreeMap<AxisSet, u64>) {
        (self.roots, self.counts)
    }
}

/// The mean over both: sums and counts are added.
impl<S: Dims> Add for Loss<S> {
    type Output = Loss<S>;

    #[track_caller]
    fn add(self, other: Loss<S>) -> Loss<S> {
        self.sum.rank().check_same(other.sum.rank());
        let both = self.sum.to_pointwise().binary(other.sum.to_pointwise(), Binary::Add);
        let sum = Value::deferred(self.sum.rank(), Vec::new(), both);
        Loss::new(sum, self.count + other.count)
    }
}

/// Never implemented: what a loss could be scaled by.
#[diagnostic::on_unimplemented(
    message = "a loss cannot be scaled by hand",
    label = "this is a sum and a count, divided once, after both are summed over the ranks",
    note = "add up the losses of micro-batches: `a + b` is the mean over both; a constant factor belongs to the learning rate"
)]
pub trait ScalesLoss {
    #[doc(hidden)]
    fn never() -> !;
}

macro_rules! never_scaled {
    ($($operator:ident $method:ident;)*) => {$(
        /// Never applies; its bound says why.
        impl<S, R: ScalesLoss> $operator<R> for Loss<S> {
            type Output = Loss<S>;

            fn $method(self, _: R) -> Loss<S> {
                R::never()
            }
        }
    )*};
}

never_scaled! {
    Mul mul;
    Div div;
}
