//! Gradients with their state in the type: accumulating, pending, reduced. Their norm, and gradient clipping.

use std::marker::PhantomData;
use std::rc::Rc;

use crate::context::{Rank, ZeroStage};
use crate::fsdp::{BackwardPass, ParamRef, Unit, UnitSlice};
use crate::layout::{AxisId, AxisSet, Dims};
use meshwright_backend::View;
use meshwright_comm::Site;

use super::counting::Pooled;
use super::loss_totals::LossTotals;
use super::{Mean, Metric};

/// State of gradients during gradient accumulation: further micro-batches follow, whose losses are counted as the first
/// ones, [`Pooled`] or [`OfStep`](super::OfStep).
#[derive(Debug)]
pub struct Accumulating<Of = Pooled>(PhantomData<Of>);

/// State of gradients after backward: their reduction over the ranks is in progress.
#[derive(Debug)]
pub struct Pending;

/// State of gradients that are the same on every rank that holds the parameter.
#[derive(Debug)]
pub struct Reduced;

/// State of gradients that can be measured, clipped and applied: [`Reduced`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` gradients are still to be summed over the ranks",
    label = "call `.reduce()` on the gradients first",
    note = "`loss.backward().reduce()` waits for the sums that backward started, and divides by the count of all ranks"
)]
pub trait Summed {}

impl Summed for Reduced {}

/// Gradients that an optimizer can apply: reduced ones, or a reference to such.
#[diagnostic::on_unimplemented(
    message = "an optimizer cannot apply `{Self}`",
    label = "not gradients",
    note = "it takes the result of `loss.backward().reduce()`, or a reference to it"
)]
pub trait Applicable {
    /// State of the gradients.
    type State: Summed;
    #[doc(hidden)]
    fn gradients(&self) -> &Gradients<Self::State>;
}

impl<State: Summed> Applicable for Gradients<State> {
    type State = State;

    fn gradients(&self) -> &Gradients<State> {
        self
    }
}

impl<State: Summed> Applicable for &Gradients<State> {
    type State = State;

    fn gradients(&self) -> &Gradients<State> {
        self
    }
}

/// State of gradients that can be reduced over the ranks: [`Pending`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` gradients cannot be summed over the ranks",
    label = "only the gradients that the last micro-batch's `.backward()` returns can be reduced, once",
    note = "`Accumulating` gradients take the last micro-batch first: `gradients.backward(loss).reduce()`",
    note = "`Reduced` gradients are sums already: another sum would count every rank's gradient again"
)]
pub trait Unsummed {}

impl Unsummed for Pending {}

/// Gradients of every parameter of the models that a loss depends on, in the buffers of their FSDP units.
///
/// A later backward of the same models overwrites the buffers. It is refused while these are not reduced, and using
/// these after it is.
#[must_use = "gradients do nothing until an optimizer applies them"]
pub struct Gradients<State> {
    pub(super) rank: Rank,
    /// The backward pass whose units hold the gradients.
    pub(super) pass: Rc<BackwardPass>,
    /// Totals of the losses.
    pub(super) totals: LossTotals,
    /// Factor of the numbers in the buffers.
    pub(super) scale: f32,
    state: PhantomData<State>,
}

impl<State> Gradients<State> {
    pub(super) fn new(rank: Rank, pass: Rc<BackwardPass>, totals: LossTotals) -> Gradients<State> {
        Gradients { rank, pass, totals, scale: 1.0, state: PhantomData }
    }

    pub(super) fn with_state<Other>(self) -> Gradients<Other> {
        let Gradients { rank, pass, totals, scale, .. } = self;
        Gradients { rank, pass, totals, scale, state: PhantomData }
    }

    /// Discards the gradients, so that another backward of the same models can begin before they are reduced.
    pub fn discard(self) {
        for unit in self.pass.units().iter().filter(|unit| self.pass.owns_gradient_of(unit)) {
            unit.discard_gradient();
        }
    }
}

impl Gradients<Pending> {
    /// Waits for the gradient reductions.
    #[doc(hidden)]
    pub fn finish_sums(&self) {
        self.pass.finish_reductions();
    }

    /// Returns the units that hold the gradients, in the order of declaration.
    #[doc(hidden)]
    pub fn units(&self) -> Vec<Rc<Unit>> {
        let mut units = self.rank.units();
        units.retain(|unit| self.pass.owns_gradient_of(unit));
        units
    }
}

impl<State> Gradients<State> {
    /// Waits for the gradient reductions, and divides by the count of all ranks. Ranks also compare the updates that
    /// they have applied before, on CPUs the losses, and in the first step the values that were declared the same on
    /// them.
    ///
    /// # Panics
    /// If another backward has overwritten these gradients, ranks have applied different updates, losses or values that
    /// were declared the same on several ranks are not, or gradients of parameters that are tied across pipeline stages
    /// are not summed over their [owners](ParamRef::is_owned).
    #[track_caller]
    pub fn reduce(self) -> Gradients<Reduced>
    where
        State: Unsummed,
    {
        self.reduce_with::<()>(&[]).0
    }

    /// Reduces the gradients, as [`reduce`](Self::reduce) does, and `metrics` in the same exchange of the ranks: the
    /// losses of the micro-batches of a step.
    ///
    /// # Panics
    /// As [`reduce`](Self::reduce).
    #[track_caller]
    pub fn reduce_with<S: Dims>(self, metrics: &[Metric<S>]) -> (Gradients<Reduced>, Vec<Mean>)
    where
        State: Unsummed,
    {
        self.pass.check_valid();
        // The reductions come first: they may be part of the CUDA graph of the backward, and every rank issues the
        // same.
        self.pass.finish_reductions();
        self.pass.units().iter().for_each(|unit| unit.check_tie_summed());
        self.pass.mark_reduced();
        self.rank.compare_declared_values();
        // Replicas that train apart have a count each.
        let (replica, replicas) = (self.rank.replica(), self.rank.replicas());
        let mut sums = vec![0.0; replicas];
        sums[replica] = self.totals.share_of_count(&self.rank);
        sums.extend(metrics.iter().flat_map(Metric::shares));
        let losses = self.totals.compared().with_auxiliary(self.pass.auxiliary_losses());
        self.rank.exchange_step(losses, &mut sums);
        let total = sums[replica];
        let means = sums[replicas..].chunks_exact(2).map(Mean::of_sums).collect();
        let scale = if total > 0.0 { self.scale * (1.0 / total) as f32 } else { 0.0 };
        (Gradients { scale, ..self.with_state() }, means)
    }

    /// Returns the gradient norm, the Euclidean norm of the gradients of the global model: every element counts once,
    /// however it is split.
    #[track_caller]
    pub fn norm(&self) -> f64
    where
        State: Summed,
    {
        self.norm_over(&self.pass.params())
    }

    /// Returns the Euclidean norm of the gradient of the global parameter `param`: every element counts once, however
    /// it is split. Every rank calls it.
    #[track_caller]
    pub fn norm_of(&self, param: &ParamRef) -> f64
    where
        State: Summed,
    {
        let is_staged = param.unit().owners().is_some();
        let is_held = (param.is_owned() || !is_staged) && self.holds_gradient(param);
        match (is_held, is_staged) {
            (true, _) => self.norm_over(std::slice::from_ref(param)),
            // Other pipeline stages may hold it.
            (false, true) => self.norm_over(&[]),
            (false, false) => 0.0,
        }
    }

    #[track_caller]
    fn norm_over(&self, params: &[ParamRef]) -> f64 {
        self.pass.check_valid();
        let mut squares = [self.local_squares_of(params)];
        self.rank.all_reduce_f64(self.norm_axes(), &Site::here("Gradients::norm"), &mut squares);
        squares[0].sqrt() * f64::from(self.scale)
    }

    /// Returns the mean over the data ranks of the squared norm of the gradient of the first of `micro_batches`
    /// micro-batches, as that of a batch of its own, before clipping: see
    /// [`Settings::first_squares`](crate::tensor::Settings::first_squares). Micro-batches are taken to count as much
    /// each. Every rank calls it, once.
    #[doc(hidden)]
    pub fn first_squares(&self, micro_batches: usize) -> f64
    where
        State: Summed,
    {
        let mut squares = [self.rank.take_first_squares()];
        let site = Site::new("Gradients::first_squares");
        self.rank.all_reduce_f64(AxisSet::ALL, &site, &mut squares);
        let ranks = self.rank.degree_of(AxisSet::DATA) as f64;
        // The buffers have the sum of the losses, whose gradient is divided by the count of the whole batch.
        let scale = f64::from(self.scale) * ranks * micro_batches as f64;
        squares[0] / ranks * scale * scale
    }

    /// Returns the axes along which ranks hold different gradients, the same on every rank.
    fn norm_axes(&self) -> AxisSet {
        let replicated = match self.rank.zero_stage() {
            ZeroStage::Replicated => AxisSet::of(AxisId::Dp).union(AxisSet::of(AxisId::Fsdp)),
            _ => AxisSet::of(AxisId::Dp),
        };
        AxisSet::ALL.difference(replicated)
    }

    /// Scales the gradients so that their norm is at most `max_norm`, and returns the norm before that.
    ///
    /// The factor is `min(1, max_norm / (norm + 1e-6))`, as in PyTorch's `clip_grad_norm_`: NaN if the norm is.
    ///
    /// # Panics
    /// If `max_norm` is negative or NaN.
    #[track_caller]
    pub fn clip(&mut self, max_norm: f64) -> f64
    where
        State: Summed,
    {
        assert!(max_norm >= 0.0, "gradients are clipped to a norm of at least 0, not {max_norm}");
        let norm = self.norm();
        self.scale *= (max_norm / (norm + 1e-6)).clamp(0.0, 1.0) as f32;
        norm
    }

    /// Returns this rank's block, row-major, of the gradient of the parameter with path `path`, if there is one:
    /// [`gather`](Self::gather) returns all of it. If it is sharded over ranks, all of them call it.
    #[track_caller]
    pub fn local_block_of(&self, path: &str) -> Option<Vec<f32>>
    where
        State: Summed,
    {
        self.pass.check_valid();
        let params = self.pass.params();
        Some(self.scaled_gradient(params.iter().find(|param| param.path() == path)?))
    }

    /// Gathers the gradient of the global parameter `param`, row-major, from the ranks that hold its parts; all of them
    /// call it. Zeros if the loss does not depend on its model.
    ///
    /// # Panics
    /// If other pipeline stages [own](ParamRef::is_owned) the parameter.
    #[track_caller]
    pub fn gather(&self, param: &ParamRef) -> Vec<f32>
    where
        State: Summed,
    {
        param.check_owned();
        let block = if self.holds_gradient(param) {
            self.scaled_gradient(param)
        } else {
            vec![0.0; param.local_len()]
        };
        param.gather_block(&self.rank, block)
    }

    /// Checks that these are gradients of all `units`, and still valid.
    #[track_caller]
    pub(crate) fn check_covers<'a>(&self, units: impl Iterator<Item = &'a Rc<Unit>>) {
        self.pass.check_covers(units);
    }

    /// Returns true if the units hold a gradient of `param`; else the loss does not depend on its model, and the
    /// gradient is zero.
    #[track_caller]
    fn holds_gradient(&self, param: &ParamRef) -> bool {
        self.rank.check_same(param.rank());
        self.pass.check_valid();
        assert!(!param.is_frozen(), "`{}` is frozen, and has no gradient", param.path());
        assert!(
            self.pass.is_requested(param.unit()),
            "`only(&units)` left the gradient of `{}` out",
            param.path()
        );
        self.pass.owns_gradient_of(param.unit())
    }

    fn scaled_gradient(&self, param: &ParamRef) -> Vec<f32> {
        param.gradient().into_iter().map(|value| value * self.scale).collect()
    }

    /// Returns the sum of squares of this rank's part of the gradients.
    #[doc(hidden)]
    pub fn local_squares(&self) -> f64 {
        self.local_squares_of(&self.pass.params())
    }

    /// Returns the sum of squares that this rank counts: a parameter that is whole along an axis is counted by the
    /// first rank of the axis; one that is sharded, by each rank as far as it owns it; and one of a pipeline stage, by
    /// its first owner.
    fn local_squares_of(&self, params: &[ParamRef]) -> f64 {
        let within_stage = self.norm_axes().difference(AxisSet::of(AxisId::Pp));
        let is_counted = |param: &&ParamRef| {
            let held_apart = param.varies().union(param.unit().shard_axes());
            let is_first = self.rank.position(within_stage.difference(held_apart)) == 0;
            is_first && param.is_first_owner()
        };
        let counted: Vec<&ParamRef> = params.iter().filter(is_counted).collect();
        let gradients: Vec<UnitSlice<'_>> =
            counted.iter().map(|param| param.owned_gradient()).collect();
        let views: Vec<View<'_>> = gradients.iter().map(UnitSlice::view).collect();
        self.rank.backend().sum_squares_of(&views)
    }

    pub(crate) fn gradient_scale(&self) -> f32 {
        self.scale
    }

    #[doc(hidden)]
    pub fn rank(&self) -> &Rank {
        &self.rank
    }
}
