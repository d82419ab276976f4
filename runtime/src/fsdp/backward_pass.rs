//! One backward pass, or several that add up: which units it writes gradients of, and whether these are still there.
//!
//! The gradients of a unit lie in buffers of the unit, of which there is one set. So a backward pass takes hold of the units
//! of each model that it reaches, a unit remembers whose gradients it holds, and [`Gradients`](crate::tensor::Gradients) are used
//! only while all of their units still hold them.

use std::cell::{Ref, RefCell};
use std::panic::Location;
use std::rc::Rc;

use crate::autograd::{NodeId, run_backward};
use crate::context::Rank;

use super::param::ParamRef;
use super::unit::Unit;

/// The gradients of one step: their units, and where they were asked for.
pub(crate) struct Backward {
    number: u64,
    /// Line of the first backward pass of the step.
    line: &'static Location<'static>,
    /// Units whose gradients are wanted; none: all that the loss depends on.
    wanted: Option<Vec<Rc<Unit>>>,
    /// Units that hold gradients of the step.
    units: RefCell<Vec<Rc<Unit>>>,
}

/// Whose gradients a unit holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    number: u64,
    line: &'static Location<'static>,
    /// Whether they are still to be summed over the ranks.
    is_open: bool,
}

impl Holder {
    /// Whether it is the step `number`.
    pub(crate) fn is(&self, number: u64) -> bool {
        self.number == number
    }
}

impl Backward {
    /// A step whose first backward pass is at `line`.
    pub(crate) fn new(
        rank: &Rank,
        line: &'static Location<'static>,
        wanted: Option<&[Rc<Unit>]>,
    ) -> Rc<Backward> {
        let (number, wanted) = (rank.next_backward(), wanted.map(<[_]>::to_vec));
        Rc::new(Backward { number, line, wanted, units: RefCell::default() })
    }

    /// The latest step, whose gradients a captured pass has left in the units.
    pub(crate) fn latest(rank: &Rank, line: &'static Location<'static>) -> Rc<Backward> {
        let number = rank.last_backward();
        let units = rank.units().into_iter().filter(|unit| unit.holds(number)).collect();
        Rc::new(Backward { number, line, wanted: None, units: RefCell::new(units) })
    }

    /// The line of the first backward pass of the step.
    pub(crate) fn line(&self) -> &'static Location<'static> {
        self.line
    }

    /// The units that hold gradients of the step.
    pub(crate) fn units(&self) -> Ref<'_, Vec<Rc<Unit>>> {
        self.units.borrow()
    }

    /// Parameters whose gradients these are.
    pub(crate) fn params(&self) -> Vec<ParamRef> {
        self.units().iter().flat_map(|unit| unit.params()).collect()
    }

    /// Adds the gradients of the losses that `roots` have computed. Afterwards the sums over ranks have begun.
    pub(crate) fn run(self: &Rc<Self>, rank: &Rank, roots: Vec<NodeId>) {
        for unit in self.units().iter() {
            unit.hold(self.holder());
            unit.begin_backward();
        }
        let mut seed = rank.stats(1);
        seed.view_mut().write(&[1.0f32]);
        rank.set_backward(Some(Rc::clone(self)));
        // Segments are recomputed as they were computed, also in the middle of an evaluation.
        rank.recorded(|| run_backward(rank, roots, seed));
        rank.set_backward(None);
        // What no gradient reached still takes part in the sums over ranks.
        self.units().iter().for_each(|unit| unit.start_reduction());
        rank.advance_reductions();
    }

    /// Whether gradients of `unit` are wanted.
    pub(crate) fn wants(&self, unit: &Rc<Unit>) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| Rc::ptr_eq(one, unit)))
    }

    /// Whether `unit` holds gradients of the step.
    pub(crate) fn holds(&self, unit: &Unit) -> bool {
        unit.holds(self.number)
    }

    /// Takes hold of `unit`, and of all units of its model. Returns whether its gradient is wanted.
    pub(crate) fn reach(&self, unit: &Rc<Unit>) -> bool {
        if unit.holds(self.number) {
            return true;
        }
        if !self.wants(unit) {
            return false;
        }
        for unit in unit.model().into_iter().filter(|unit| self.wants(unit)) {
            if let Some(Holder { line, is_open: true, .. }) = unit.holder() {
                panic!(
                    "backward at {} would overwrite the gradients of `{}` from the backward at {line}, which were not \
                     reduced: for several micro-batches, `let gradients = first.accumulate();` and \
                     `gradients.backward(last)`; for several losses, `(a + b).backward()`, or `.reduce()` and apply the \
                     gradients of one before the backward of the other; gradients that are not wanted, `.discard()`",
                    self.line,
                    unit.name()
                );
            }
            unit.begin_gradient();
            unit.begin_backward();
            unit.hold(self.holder());
            self.units.borrow_mut().push(unit);
        }
        true
    }

    /// The gradients are summed over the ranks: others may overwrite them.
    pub(crate) fn close(&self) {
        let closed = Holder { is_open: false, ..self.holder() };
        self.units().iter().for_each(|unit| unit.hold(closed));
    }

    /// Makes sure that the gradients are still there.
    ///
    /// # Panics
    /// When a later backward pass has overwritten them.
    #[track_caller]
    pub(crate) fn check(&self) {
        let lost = |unit: &&Rc<Unit>| !unit.holds(self.number);
        if let Some(unit) = self.units().iter().find(lost) {
            let after = unit.holder().map_or_else(
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
        if let Some(unit) = self.units().iter().find(|unit| unit.has_lost_params()) {
            panic!(
                "the model with `{}` was dropped after the backward at {}: keep it as long as its gradients are used",
                unit.name(),
                self.line
            );
        }
    }

    /// Makes sure that there are gradients of all `units`.
    ///
    /// # Panics
    /// When the loss did not depend on the model of one of them, or its gradient was not wanted.
    #[track_caller]
    pub(crate) fn check_covers<'a>(&self, mut units: impl Iterator<Item = &'a Rc<Unit>>) {
        self.check();
        if let Some(unit) = units.find(|unit| !unit.holds(self.number)) {
            panic!(
                "the optimizer updates `{}`, of which the gradients from the backward at {} hold nothing: the loss \
                 does not depend on that model, or `backward_for` left it out; give each optimizer the gradients of \
                 a loss of its own model",
                unit.name(),
                self.line
            );
        }
    }

    fn holder(&self) -> Holder {
        Holder { number: self.number, line: self.line, is_open: true }
    }
}
