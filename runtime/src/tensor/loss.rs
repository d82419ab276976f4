//! Losses as ratios, and gradients whose state the types keep.

use std::marker::PhantomData;
use std::ops::{Add, Div, Mul};
use std::sync::Arc;

use crate::backend::View;
use crate::comm::Site;
use crate::layout::{AxisId, AxisSet, Shape};

use super::pointwise::Binary;
use super::tape::run_backward;
use super::unit::Stretch;
use super::value::Value;
use super::{HasValue, Mean, Metric, Operand, ParamRef, Rank, ZeroLevel};

/// The axes along which ranks hold different parameters.
const MODEL_AXES: AxisSet = AxisSet::ALL.minus(AxisSet::DATA);

/// A mean over everything shaped `S` that counts: numerator and count of this rank, both still to be summed over the
/// axes over which `S` varies, and divided once after that.
#[must_use = "a loss does nothing until `.backward()`, and has no value until `.reduce()`"]
pub struct Loss<S> {
    /// One element: the sum over what this rank holds.
    sum: Value,
    count: u64,
    shape: PhantomData<S>,
}

impl<S: Shape> Loss<S> {
    pub(crate) fn new(sum: Value, count: u64) -> Loss<S> {
        Loss { sum, count, shape: PhantomData }
    }

    /// A loss that is the mean of `terms`: the sum over every element, divided by their number on all ranks.
    pub fn mean_of<T: Operand<Shape = S>>(terms: &T) -> Loss<S> {
        let terms = terms.operand();
        let ready = terms.value().compute();
        let rank = terms.rank();
        let len = ready.data.len();
        let mut sum = rank.stats(1);
        rank.backend().sum_dim(1, len, 1, ready.data.view(), sum.view_mut(), 1.0);
        let node = ready.node.map(|source| {
            rank.tape().record(move |gradients, dy| {
                let mut dx = gradients.rank.alloc(len);
                gradients.rank.backend().broadcast_dim(1, len, 1, dy.view(), dx.view_mut(), 1.0);
                gradients.add(source, Arc::new(dx));
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

    /// Runs the tape backwards, and starts summing the gradient of each unit over the ranks as soon as it is complete.
    ///
    /// What comes out is the gradient of the *sum*; [`Gradients::reduce`] divides by the count of all ranks.
    pub fn backward(self) -> Gradients<Pending> {
        Gradients::begin(&self).undo(self, true)
    }

    /// Runs the tape backwards for the first of several micro-batches: [`Gradients::accumulate`] and
    /// [`Gradients::backward`] take the others.
    pub fn accumulate(self) -> Gradients<Accumulating> {
        Gradients::begin(&self).undo(self, false)
    }
}

/// The mean over both: sums and counts are added.
impl<S: Shape> Add for Loss<S> {
    type Output = Loss<S>;

    fn add(self, other: Loss<S>) -> Loss<S> {
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

/// Gradients of some of a step's micro-batches: others are still to be added.
#[derive(Debug)]
pub struct Accumulating;

/// Gradients as they come out of backward: still to be summed over ranks.
#[derive(Debug)]
pub struct Pending;

/// Gradients that are the same on every rank that holds the parameter.
#[derive(Debug)]
pub struct Reduced;

/// The state of gradients that can be measured, clipped and applied: [`Reduced`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` gradients are still to be summed over the ranks",
    label = "call `.reduce()` on the gradients first",
    note = "`loss.backward().reduce()` waits for the sums that backward started, and divides by the count of all ranks"
)]
pub trait Summed {}

impl Summed for Reduced {}

/// The state of gradients that can be summed over the ranks: [`Pending`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` gradients cannot be summed over the ranks",
    label = "only what the last micro-batch's `.backward()` returns can be, and once",
    note = "`Accumulating` gradients take the last micro-batch first: `gradients.backward(loss).reduce()`",
    note = "`Reduced` gradients are sums already: another one would count every rank's share again"
)]
pub trait Unsummed {}

impl Unsummed for Pending {}

/// The gradients of every parameter of this rank, in their units' buffers.
#[must_use = "gradients do nothing until an optimiser applies them"]
pub struct Gradients<State> {
    rank: Rank,
    count: u64,
    axes: AxisSet,
    /// What the numbers in the buffers are to be multiplied by.
    scale: f32,
    state: PhantomData<State>,
}

impl<State> Gradients<State> {
    /// The gradients of micro-batches that count so many elements shaped `S`, which are in the buffers already.
    pub(super) fn there<S: Shape>(rank: &Rank, count: u64) -> Gradients<State> {
        Gradients { rank: rank.clone(), count, axes: S::VARIES, scale: 1.0, state: PhantomData }
    }
}

impl Gradients<Accumulating> {
    fn begin<S: Shape>(loss: &Loss<S>) -> Gradients<Accumulating> {
        let rank = loss.sum.rank().clone();
        rank.units().iter().for_each(|unit| unit.begin_gradient());
        Gradients { rank, count: 0, axes: S::VARIES, scale: 1.0, state: PhantomData }
    }

    /// Adds the gradient of one more micro-batch, after which there are others.
    pub fn accumulate<S: Shape>(self, loss: Loss<S>) -> Gradients<Accumulating> {
        self.undo(loss, false)
    }

    /// Adds the gradient of the last micro-batch, and starts summing the gradient of each unit over the ranks as soon as
    /// it is complete: once per step, or from ZeRO level 2 on, where no rank keeps all of a gradient, once per
    /// micro-batch.
    pub fn backward<S: Shape>(self, loss: Loss<S>) -> Gradients<Pending> {
        self.undo(loss, true)
    }

    fn undo<S: Shape, State>(self, loss: Loss<S>, last: bool) -> Gradients<State> {
        let rank = self.rank;
        let node = loss.sum.settle().node;
        let mut seed = rank.stats(1);
        seed.view_mut().write(&[1.0f32]);
        rank.set_last_micro_batch(last);
        run_backward(&rank, node, seed);
        let (count, axes) = (self.count + loss.count, self.axes.or(S::VARIES));
        Gradients { rank, count, axes, scale: 1.0, state: PhantomData }
    }
}

impl Gradients<Pending> {
    /// Waits for the sums over ranks.
    pub(crate) fn finish_sums(&self) {
        self.rank.units().iter().for_each(|unit| unit.finish_reduction());
    }
}

impl<State> Gradients<State> {
    /// Waits for the sums over ranks, and divides by the count of all of them.
    #[track_caller]
    pub fn reduce(self) -> Gradients<Reduced>
    where
        State: Unsummed,
    {
        // What the device does first: it may have been recorded with the backward pass, and every rank issues the same.
        self.rank.units().iter().for_each(|unit| unit.finish_reduction());
        let mut count = [self.count as f64];
        self.rank.all_reduce_f64(self.axes, &Site::here("Gradients::reduce"), &mut count);
        let scale = if count[0] > 0.0 { (1.0 / count[0]) as f32 } else { 0.0 };
        Gradients { rank: self.rank, count: self.count, axes: self.axes, scale, state: PhantomData }
    }

    /// The Euclidean norm of the gradient of the global model: every element counts once, however it is split.
    #[track_caller]
    pub fn norm(&self) -> f64
    where
        State: Summed,
    {
        let mut squares = [self.local_squares()];
        self.rank.all_reduce_f64(self.counted_over(), &Site::here("Gradients::norm"), &mut squares);
        squares[0].sqrt() * f64::from(self.scale)
    }

    /// Scales the gradients so that their norm is at most `max_norm`, and returns the norm before that.
    ///
    /// The factor is `min(1, max_norm / (norm + 1e-6))`, as in PyTorch's `clip_grad_norm_`.
    #[track_caller]
    pub fn clip(&mut self, max_norm: f64) -> f64
    where
        State: Summed,
    {
        let norm = self.norm();
        self.scale *= (max_norm / (norm + 1e-6)).min(1.0) as f32;
        norm
    }

    /// This rank's block, row-major, of the gradient of the parameter with path `path`, if there is one. Where it is
    /// sharded over the `fsdp` axis, all of its ranks must call it.
    pub fn of(&self, path: &str) -> Option<Vec<f32>>
    where
        State: Summed,
    {
        let units = self.rank.units();
        let mut params = units.iter().flat_map(|unit| unit.params());
        Some(self.block(&params.find(|param| param.path() == path)?))
    }

    /// All of the gradient of `param`, row-major, put together from the ranks that hold its parts; all of them must
    /// call it.
    pub fn gather(&self, param: &ParamRef) -> Vec<f32>
    where
        State: Summed,
    {
        param.gather_block(&self.rank, &self.block(param))
    }

    fn block(&self, param: &ParamRef) -> Vec<f32> {
        param.gradient().into_iter().map(|value| value * self.scale).collect()
    }

    /// The sum of squares of what this rank counts: a parameter that is whole along an axis is counted by the first
    /// rank of the axis; one that is sharded, by each rank as far as it owns it.
    pub(crate) fn local_squares(&self) -> f64 {
        let units = self.rank.units();
        let params = units.iter().flat_map(|unit| unit.params());
        let counted: Vec<ParamRef> = params
            .filter(|param| self.rank.position(MODEL_AXES.minus(param.varies())) == 0)
            .collect();
        let gradients: Vec<Stretch<'_>> = counted.iter().map(ParamRef::owned_gradient).collect();
        let views: Vec<View<'_>> = gradients.iter().map(Stretch::view).collect();
        self.rank.backend().sum_squares_of(&views)
    }

    /// The axes along which ranks hold different gradients.
    fn counted_over(&self) -> AxisSet {
        match self.rank.zero_level() {
            ZeroLevel::Replicated => MODEL_AXES,
            _ => MODEL_AXES.or(AxisSet::of(AxisId::Fsdp)),
        }
    }

    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    pub(crate) fn rank(&self) -> &Rank {
        &self.rank
    }
}
