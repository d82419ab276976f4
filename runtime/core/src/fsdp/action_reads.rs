//! The units that the actions of a pipeline schedule read: known from their last execution, and expected in the next.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::{Rc, Weak};

use crate::context::Rank;

use super::kept_units::first_units;
use super::unit::Unit;

/// One of the computations of a pipeline stage, the same for all micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StageAction {
    /// Index of the stage.
    pub stage: usize,
    /// Kind of the computation.
    pub kind: StageActionKind,
}

/// Kind of a computation of a pipeline stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StageActionKind {
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
    /// Units that stay unsharded until this backward reads them.
    kept: Vec<Weak<Unit>>,
    /// Units that stay unsharded for a later backward.
    kept_for_later: Vec<Weak<Unit>>,
}

impl ActionReads {
    /// Begins an action, which is followed by `later` ones on this rank.
    pub fn begin_action(
        &mut self,
        action: StageAction,
        later: impl Iterator<Item = StageAction> + Clone,
    ) {
        let mut running = RunningAction {
            action,
            reads: Vec::new(),
            position: None,
            first_of_next: None,
            kept: Vec::new(),
            kept_for_later: Vec::new(),
        };
        if self.has_reads {
            // Actions that read nothing are passed over. Of one that has never run, the reads are not known.
            let mut reads = later.clone().map_while(|later| self.known.get(&later));
            running.first_of_next = reads.find_map(|reads| reads.first()).cloned();
            running.kept = self.kept_until(action);
            let later: HashSet<StageAction> = later.collect();
            running.kept_for_later =
                later.into_iter().flat_map(|later| self.kept_until(later)).collect();
        }
        self.running = Some(running);
    }

    /// Returns the units that stay unsharded from the forward pass of a stage until an action, its backward, reads
    /// them.
    fn kept_until(&self, action: StageAction) -> Vec<Weak<Unit>> {
        let forward = StageAction { kind: StageActionKind::Forward, ..action };
        let (StageActionKind::Backward, Some(forward), Some(backward)) =
            (action.kind, self.known.get(&forward), self.known.get(&action))
        else {
            return Vec::new();
        };
        let is_read_in_forward = |unit: &&Weak<Unit>| forward.iter().any(|read| read.ptr_eq(unit));
        first_units(backward.iter().filter(is_read_in_forward).filter_map(Weak::upgrade))
    }

    /// Returns the units that stay unsharded; none while no action is running.
    pub fn kept(&self) -> impl Iterator<Item = &Weak<Unit>> {
        let running = self.running.iter();
        running.flat_map(|running| running.kept.iter().chain(&running.kept_for_later))
    }

    /// Notes that the running backward reads a unit, which stays unsharded for later ones only.
    pub fn release(&mut self, unit: &Rc<Unit>) {
        if let Some(running) = &mut self.running {
            running.kept.retain(|kept| !is_unit(kept, unit));
        }
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

/// The computations of a pipeline schedule of a rank.
#[derive(Default)]
struct StageActions {
    count: Cell<u64>,
    running: Cell<Option<u64>>,
}

impl Rank {
    /// Begins an action of a pipeline schedule, which is followed by `later` ones on this rank.
    #[doc(hidden)]
    pub fn begin_stage_action(
        &self,
        action: StageAction,
        later: impl Iterator<Item = StageAction> + Clone,
    ) {
        let StageActions { count, running } = self.session_state();
        running.set(Some(count.replace(count.get() + 1)));
        self.prefetcher().actions.begin_action(action, later);
    }

    /// Ends an action of a pipeline schedule.
    #[doc(hidden)]
    pub fn end_stage_action(&self) {
        self.session_state::<StageActions>().running.set(None);
        self.prefetcher().actions.end_action();
    }

    /// Returns the number of the action of a pipeline schedule that is running.
    #[doc(hidden)]
    pub fn running_action(&self) -> Option<u64> {
        self.session_state::<StageActions>().running.get()
    }
}

pub(super) fn is_unit(known: &Weak<Unit>, unit: &Rc<Unit>) -> bool {
    std::ptr::eq(known.as_ptr(), Rc::as_ptr(unit))
}
