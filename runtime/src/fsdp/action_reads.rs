//! The units that the actions of a pipeline schedule read: known from their last execution, and expected in the next.

use std::collections::HashMap;
use std::rc::{Rc, Weak};

use super::unit::Unit;

/// One of the computations of a pipeline stage, the same for all micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StageAction {
    pub stage: usize,
    pub kind: StageActionKind,
}

/// Kind of a computation of a pipeline stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StageActionKind {
    /// The forward pass.
    Forward,
    /// The backward pass, with all weight gradients or without the deferred ones.
    Backward,
    /// The deferred weight gradients.
    Weights,
}

/// The reads of each action in its last execution, and the running action.
#[derive(Default)]
pub(super) struct ActionReads {
    known: HashMap<StageAction, Vec<Weak<Unit>>>,
    /// False as long as no action has read a unit: below ZeRO stage 3.
    has_reads: bool,
    running: Option<RunningAction>,
}

struct RunningAction {
    action: StageAction,
    /// The reads so far; several of one unit in a row are one.
    reads: Vec<Weak<Unit>>,
    /// Position in the known reads of the action; `None` after a read that is not among them.
    position: Option<usize>,
    /// The first unit that a later action reads.
    first_of_next: Option<Weak<Unit>>,
}

impl ActionReads {
    /// Begins an action, which is followed by `later` ones on this rank.
    pub fn begin_action(&mut self, action: StageAction, later: impl Iterator<Item = StageAction>) {
        // Actions that read nothing are passed over. Of one that has never run, the reads are not known.
        let mut reads = later.map_while(|later| self.known.get(&later));
        let first_of_next =
            if self.has_reads { reads.find_map(|reads| reads.first()).cloned() } else { None };
        self.running =
            Some(RunningAction { action, reads: Vec::new(), position: None, first_of_next });
    }

    /// Ends the running action.
    pub fn end_action(&mut self) {
        if let Some(RunningAction { action, reads, .. }) = self.running.take() {
            self.known.insert(action, reads);
        }
    }

    /// Returns the first unit that a later action reads, if it is known.
    pub fn first_of_next(&self) -> Option<Rc<Unit>> {
        self.running.as_ref()?.first_of_next.as_ref()?.upgrade()
    }

    /// Notes a read of the running action.
    pub fn note(&mut self, unit: &Rc<Unit>) {
        let Some(running) = &mut self.running else { return };
        if running.reads.last().is_some_and(|last| is_unit(last, unit)) {
            return;
        }
        let known = self.known.get(&running.action).map_or(&[][..], Vec::as_slice);
        let expected = running.position.map_or(0, |position| position + 1);
        running.position = match known.get(expected) {
            Some(known) if is_unit(known, unit) => Some(expected),
            _ => known.iter().position(|known| is_unit(known, unit)),
        };
        running.reads.push(Rc::downgrade(unit));
        self.has_reads = true;
    }

    /// Returns the unit that is expected after the last noted read: of the running action, or the first of a later one.
    /// `None` if no action is running, or its last execution did not read the last unit.
    pub fn next(&self) -> Option<Rc<Unit>> {
        let running = self.running.as_ref()?;
        let known = self.known.get(&running.action)?;
        match known.get(running.position? + 1) {
            Some(next) => next.upgrade(),
            None => self.first_of_next(),
        }
    }

    /// Returns true while an action is running.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

pub(super) fn is_unit(known: &Weak<Unit>, unit: &Rc<Unit>) -> bool {
    std::ptr::eq(known.as_ptr(), Rc::as_ptr(unit))
}
