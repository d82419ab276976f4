//! Backward passes of a step as the units see them: whose gradients the buffers hold, and whether they are still valid.
//!
//! Each unit has one set of gradient buffers. A backward pass acquires the units of each model that it reaches, a unit
//! remembers the pass whose gradients it holds, and [`Gradients`](crate::tensor::Gradients) are used only while all of
//! their units still hold them.

use std::cell::{Cell, Ref, RefCell};
use std::panic::Location;
use std::rc::Rc;

use crate::context::Rank;
use crate::context::scope::{self, Pass};
use crate::promise::LossSum;

use super::param::ParamRef;
use super::unit::{GradientOwner, Unit};

/// Backward of one step: one pass, or several whose gradients accumulate.
pub struct BackwardPass {
    number: u64,
    /// Line of the first `backward` of the step.
    line: &'static Location<'static>,
    /// Units that require gradients; `None` for all that the loss depends on.
    requested: Option<Vec<Rc<Unit>>>,
    /// Units that hold gradients of the step.
    units: RefCell<Vec<Rc<Unit>>>,
    /// Units whose gradients are complete after the running backward of a micro-batch.
    completed: RefCell<CompletedUnits>,
    /// Number of micro-batch passes whose weight gradients are deferred, and not yet computed.
    deferred: Cell<usize>,
    /// Sum of the auxiliary losses that it has reached.
    auxiliary: Cell<LossSum>,
}

/// Units whose gradients of the step are complete after the backward of a micro-batch, so that their last reduction
/// starts.
#[derive(Default)]
pub enum CompletedUnits {
    /// None: further micro-batches follow.
    #[default]
    None,
    /// All that hold gradients of the step.
    All,
    /// The listed units, even if no gradient reached them.
    Listed(Vec<Rc<Unit>>),
}

impl CompletedUnits {
    fn contains(&self, unit: &Rc<Unit>) -> bool {
        match self {
            CompletedUnits::None => false,
            CompletedUnits::All => true,
            CompletedUnits::Listed(units) => units.iter().any(|one| Rc::ptr_eq(one, unit)),
        }
    }
}

/// Backward passes of a rank.
#[derive(Default)]
struct BackwardPasses {
    running: RefCell<Option<Rc<BackwardPass>>>,
    count: Cell<u64>,
}

impl Rank {
    /// Returns the backward pass that is running.
    pub(crate) fn running_backward(&self) -> Option<Rc<BackwardPass>> {
        self.session_state::<BackwardPasses>().running.borrow().clone()
    }

    /// Sets the backward pass that is running.
    pub(crate) fn set_running_backward(&self, backward: Option<Rc<BackwardPass>>) {
        self.session_state::<BackwardPasses>().running.replace(backward);
    }

    /// Formats the line of the running backward for messages: ` at src/main.rs:10:5`, or nothing.
    pub(crate) fn backward_line(&self) -> String {
        self.running_backward().map_or_else(String::new, |pass| format!(" at {}", pass.line()))
    }
}

impl BackwardPass {
    /// Creates the backward of a step that begins at `line`.
    #[doc(hidden)]
    pub fn new(
        rank: &Rank,
        line: &'static Location<'static>,
        requested: Option<&[Rc<Unit>]>,
    ) -> Rc<BackwardPass> {
        let count = &rank.session_state::<BackwardPasses>().count;
        let (number, requested) = (count.get() + 1, requested.map(<[_]>::to_vec));
        count.set(number);
        Rc::new(BackwardPass::with_units(number, line, requested, Vec::new()))
    }

    /// Returns the latest backward, whose gradients a replayed CUDA graph has left in the units.
    pub(crate) fn latest(rank: &Rank, line: &'static Location<'static>) -> Rc<BackwardPass> {
        let number = rank.session_state::<BackwardPasses>().count.get();
        let units = rank.units().into_iter().filter(|unit| unit.has_gradient_of(number));
        let units: Vec<_> = units.inspect(|unit| unit.reopen_gradient()).collect();
        Rc::new(BackwardPass::with_units(number, line, None, units))
    }

    fn with_units(
        number: u64,
        line: &'static Location<'static>,
        requested: Option<Vec<Rc<Unit>>>,
        units: Vec<Rc<Unit>>,
    ) -> BackwardPass {
        BackwardPass {
            number,
            line,
            requested,
            units: RefCell::new(units),
            completed: RefCell::default(),
            deferred: Cell::new(0),
            auxiliary: Cell::default(),
        }
    }

    /// Returns the line of the first `backward` of the step.
    pub(crate) fn line(&self) -> &'static Location<'static> {
        self.line
    }

    /// Adds an auxiliary loss that a backward has reached.
    pub(crate) fn add_auxiliary_loss(&self, loss: LossSum) {
        self.auxiliary.set(self.auxiliary.get().with(loss));
    }

    /// Returns the sum of the auxiliary losses that it has reached.
    pub(crate) fn auxiliary_losses(&self) -> LossSum {
        self.auxiliary.get()
    }

    /// Returns the units that hold gradients of the step.
    pub(crate) fn units(&self) -> Ref<'_, Vec<Rc<Unit>>> {
        self.units.borrow()
    }

    /// Returns the parameters whose gradients the units hold.
    pub(crate) fn params(&self) -> Vec<ParamRef> {
        self.units().iter().flat_map(|unit| unit.params()).collect()
    }

    /// Begins the backward of one micro-batch in the units that already hold gradients of the step. The gradients of
    /// `completed` are complete after it.
    #[doc(hidden)]
    pub fn begin_micro_batch(&self, completed: CompletedUnits) {
        self.completed.replace(completed);
        for unit in self.units().iter() {
            unit.set_gradient_owner(self.pending_owner());
            unit.begin_backward();
        }
    }

    /// Ends the backward of one micro-batch: starts the reduction of all gradients that are complete.
    #[doc(hidden)]
    pub fn end_micro_batch(&self, rank: &Rank) {
        let _pass = scope::begin_pass(Pass::Backward);
        if let CompletedUnits::Listed(units) = &*self.completed.borrow() {
            for unit in units {
                self.acquire(unit);
            }
        }
        // Units that no gradient reached still take part in the reductions.
        self.units().iter().for_each(|unit| self.reduce_gradient_of(unit));
        rank.finish_earlier_reduce_scatters();
        rank.prune_use_counts();
    }

    /// Waits for the reductions of all units that hold gradients of the step.
    pub(crate) fn finish_reductions(&self) {
        // All reductions over replicas are in progress before the first one is waited for.
        self.units().iter().for_each(|unit| unit.finish_reduce_scatter());
        self.units().iter().for_each(|unit| unit.finish_reduction());
    }

    /// Starts the reduction of the gradient of `unit`, to which the running micro-batch adds nothing more.
    pub(super) fn reduce_gradient_of(&self, unit: &Rc<Unit>) {
        unit.start_reduction(self.completed.borrow().contains(unit));
    }

    /// Counts a micro-batch pass whose weight gradients are deferred.
    pub(crate) fn begin_deferred(&self) {
        self.deferred.set(self.deferred.get() + 1);
    }

    /// Counts a micro-batch pass whose deferred weight gradients were computed.
    pub(crate) fn end_deferred(&self) {
        self.deferred.set(self.deferred.get() - 1);
    }

    /// Checks that no weight gradients of the step are deferred.
    ///
    /// # Panics
    /// If `DeferredWeightGradients` were not computed: the gradients would lack a micro-batch.
    #[track_caller]
    pub(crate) fn check_no_deferred(&self) {
        let count = self.deferred.get();
        assert!(
            count == 0,
            "the weight gradients of {count} passes of the step at {} are deferred, and were not computed: \
             call `compute_gradients` on each `DeferredWeightGradients` before the gradients are complete",
            self.line
        );
    }

    /// Checks that the last reduction has started for all units that hold gradients of the step.
    ///
    /// # Panics
    /// If a unit was not completed by any pass: its gradient would not be reduced over the ranks.
    #[track_caller]
    pub(crate) fn check_complete(&self) {
        let is_open = |unit: &&Rc<Unit>| !unit.is_empty() && !unit.is_gradient_complete();
        if let Some(unit) = self.units().iter().find(is_open) {
            panic!(
                "the gradient of `{}` from the step at {} was not completed: list its unit in \
                 `WeightGradients::Now {{ complete }}`, or in `DeferredWeightGradients::compute_gradients`, of the \
                 last pass that reaches it",
                unit.name(),
                self.line
            );
        }
    }

    /// Returns true if `unit` requires gradients.
    pub(crate) fn includes(&self, unit: &Rc<Unit>) -> bool {
        !unit.is_frozen() && self.is_requested(unit)
    }

    /// Returns true if the gradients are not limited to other units.
    pub(crate) fn is_requested(&self, unit: &Rc<Unit>) -> bool {
        self.requested
            .as_ref()
            .is_none_or(|requested| requested.iter().any(|one| Rc::ptr_eq(one, unit)))
    }

    /// Returns true if `unit` holds gradients of the step.
    pub(crate) fn owns_gradient_of(&self, unit: &Unit) -> bool {
        unit.has_gradient_of(self.number)
    }

    /// Acquires `unit`, which a gradient reaches, and all units of its model. Returns true if the unit requires a
    /// gradient.
    #[doc(hidden)]
    pub fn acquire(&self, unit: &Rc<Unit>) -> bool {
        if self.owns_gradient_of(unit) {
            return true;
        }
        if unit.is_frozen() {
            return false;
        }
        // Of the requested units, those that no gradient reaches have the gradient zero.
        let is_missing = |unit: &Rc<Unit>| self.includes(unit) && !self.owns_gradient_of(unit);
        for unit in unit.units_of_model().into_iter().filter(is_missing) {
            if let Some(GradientOwner { line, is_pending: true, .. }) = unit.gradient_owner() {
                panic!(
                    "backward at {} would overwrite the gradients of `{}` from the backward at {line}, which were not \
                     reduced: for several micro-batches, `let gradients = first.accumulate();` and \
                     `gradients.backward(last)`; for several losses, `(a + b).backward()`, or `.reduce()` and apply \
                     the gradients of one before the backward of the other; call `.discard()` on gradients that are \
                     not used",
                    self.line,
                    unit.name()
                );
            }
            unit.begin_gradient();
            unit.begin_backward();
            unit.set_gradient_owner(self.pending_owner());
            self.units.borrow_mut().push(unit);
        }
        self.owns_gradient_of(unit)
    }

    /// Marks the gradients as reduced: later passes may overwrite them.
    pub(crate) fn mark_reduced(&self) {
        let owner = GradientOwner { is_pending: false, ..self.pending_owner() };
        self.units().iter().for_each(|unit| unit.set_gradient_owner(owner));
    }

    /// Checks that the units still hold the gradients.
    ///
    /// # Panics
    /// If a later backward has overwritten them, or they were discarded.
    #[track_caller]
    pub(crate) fn check_valid(&self) {
        let lost = |unit: &&Rc<Unit>| !self.owns_gradient_of(unit);
        if let Some(unit) = self.units().iter().find(lost) {
            let after = unit.gradient_owner().map_or_else(
                || "were discarded".to_owned(),
                |by| format!("were overwritten by the backward at {}", by.line),
            );
            panic!(
                "the gradients of `{}` from the backward at {} {after}: use them before that, in the order backward, \
                 reduce, norm or clip, step",
                unit.name(),
                self.line,
            );
        }
        if let Some(unit) = self.units().iter().find(|unit| unit.has_dropped_params()) {
            panic!(
                "the model with `{}` was dropped after the backward at {}: keep it as long as its gradients are used",
                unit.name(),
                self.line
            );
        }
    }

    /// Checks that there are gradients of all `units`.
    ///
    /// # Panics
    /// If the loss did not depend on the model of one of them, or its gradient was not requested.
    #[track_caller]
    pub(crate) fn check_covers<'a>(&self, mut units: impl Iterator<Item = &'a Rc<Unit>>) {
        self.check_valid();
        if let Some(unit) = units.find(|unit| !self.owns_gradient_of(unit)) {
            panic!(
                "the optimizer updates `{}`, but the gradients from the backward at {} do not contain it: the loss \
                 does not depend on that model, or `only(&units)` excludes it; pass each optimizer the gradients of a \
                 loss of its own model",
                unit.name(),
                self.line
            );
        }
    }

    fn pending_owner(&self) -> GradientOwner {
        GradientOwner { number: self.number, line: self.line, is_pending: true }
    }
}

impl Unit {
    /// Checks that the values are those that the forward pass has read.
    ///
    /// # Panics
    /// If they have changed since.
    pub(crate) fn check_version(&self, version: u64) {
        if self.version() != version {
            panic!(
                "`{}` was changed, by an optimizer's step or by `write`, between its forward pass and its backward{}: \
                 the gradient would mix values from before and after; run the backward before that, or compute the \
                 loss again",
                self.name(),
                self.rank().backward_line()
            );
        }
    }
}
