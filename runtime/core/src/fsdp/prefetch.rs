//! Prefetch at ZeRO stage 3: when units are unsharded (all-gathered) and resharded (freed).

use std::cell::{RefCell, RefMut};
use std::rc::{Rc, Weak};

use crate::context::{Rank, ZeroStage};

use super::action_reads::{ActionReads, is_unit};
use super::kept_units::first_units;
use super::unit::Unit;

/// The unsharded units of a rank, and the order of uses of units.
///
/// A unit is unsharded when its values are first read, stays unsharded while no other unit's values are read, and is
/// resharded then. The order of a forward pass is recorded: backward follows it in reverse, and the forward pass of the
/// next step follows it again; the unit that comes next is prefetched. The units that backward reads first stay
/// unsharded from the forward pass on. While a segment is recomputed no unit is resharded, because the backward of the
/// segment follows immediately.
///
/// In a pipeline the order is that of the schedule: each [action](super::action_reads::StageAction) reads the units
/// that it has read before, and is followed by the first unit of the next action, which stays unsharded until then.
#[derive(Default)]
pub(crate) struct Prefetcher {
    phase: StepPhase,
    /// Order of the last forward pass that was differentiated, and the position of the current one in it.
    forward_order: Vec<Weak<Unit>>,
    forward_position: Option<usize>,
    /// Reads of the current forward pass, until it is differentiated.
    reads: Vec<UnitRead>,
    /// Position of backward in `reads`, from the end.
    backward_position: usize,
    current: Option<Rc<Unit>>,
    prefetched: Option<Rc<Unit>>,
    unsharded: Vec<Rc<Unit>>,
    /// The units that stay unsharded until backward reads them, without a pipeline.
    kept: Vec<Weak<Unit>>,
    /// True if values have been read in the current evaluation: until then it leaves everything as it is, so that ranks
    /// may evaluate on their own what reads no parameter.
    has_evaluated: bool,
    pub(super) actions: ActionReads,
}

/// Phase of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum StepPhase {
    /// A forward pass that backward follows.
    #[default]
    Forward,
    /// A forward pass that is not recorded.
    Evaluate,
    /// Backward.
    Backward,
    /// Recomputation of a segment within backward.
    Recompute,
    /// Backward of a recomputed segment.
    SegmentBackward,
}

/// Consecutive reads of one unit's values in a forward pass.
pub(super) struct UnitRead {
    unit: Weak<Unit>,
    /// True if backward reads the values too.
    is_read_in_backward: bool,
    /// Index of the first read of the checkpointed segment that this read is part of: backward recomputes from there.
    segment_start: Option<usize>,
}

impl Prefetcher {
    /// Enters `phase`, and returns the previous one.
    pub(crate) fn enter_phase(&mut self, phase: StepPhase) -> StepPhase {
        let before = std::mem::replace(&mut self.phase, phase);
        match (before, phase) {
            (StepPhase::Forward, StepPhase::Backward) => self.backward_position = self.reads.len(),
            (StepPhase::Backward, StepPhase::Forward) => {
                self.kept = first_units(self.units_of_backward());
                self.forward_order = self.reads.drain(..).map(|read| read.unit).collect();
                self.forward_position = None;
                match self.actions.first_of_next() {
                    // The first read of the next action reshards the units that it does not need.
                    Some(next) => self.prefetched = Some(next),
                    None => self.reshard_all(),
                }
            }
            (StepPhase::Evaluate, StepPhase::Forward) if self.has_evaluated => {
                self.has_evaluated = false;
                self.begin_order();
            }
            _ => {}
        }
        before
    }

    /// Returns the current phase.
    pub(crate) fn phase(&self) -> StepPhase {
        self.phase
    }

    /// Exchanges the reads of the current forward pass with `reads`, the reads of another one.
    pub(super) fn swap_reads(&mut self, reads: &mut Vec<UnitRead>) {
        std::mem::swap(&mut self.reads, reads);
        self.forward_position = None;
        // The next read is noted, even if it is of the unit that the other forward pass has read last.
        self.current = None;
    }

    /// Notes that backward will read the values of `unit`, which were just read.
    fn note_backward_read(&mut self, unit: &Rc<Unit>) {
        let read = self.reads.iter_mut().rev().find(|read| is_unit(&read.unit, unit));
        if let Some(read) = read {
            read.is_read_in_backward = true;
        }
    }

    /// Unshards `unit`, whose values are about to be read, prefetches the unit expected next, and reshards others.
    fn unshard_and_prefetch(&mut self, unit: &Rc<Unit>) {
        let is_current = self.current.as_ref().is_some_and(|current| Rc::ptr_eq(current, unit));
        // After a change of its values, the current unit was resharded.
        if is_current && unit.is_unsharded() {
            return;
        }
        if self.phase == StepPhase::Evaluate && !self.has_evaluated {
            self.has_evaluated = true;
            self.begin_order();
        }
        self.actions.note(unit);
        let next = match self.phase {
            StepPhase::Forward | StepPhase::Evaluate => self.next_in_forward(unit),
            StepPhase::Backward => self.next_in_backward(unit),
            StepPhase::Recompute => self.next_in_recompute(unit),
            // All units of the segment are unsharded.
            StepPhase::SegmentBackward => None,
        };
        let next = next.filter(|next| !Rc::ptr_eq(next, unit));
        if !matches!(self.phase, StepPhase::Forward | StepPhase::Evaluate) {
            self.kept.retain(|kept| !is_unit(kept, unit));
            self.actions.release(unit);
        }
        if !matches!(self.phase, StepPhase::Recompute | StepPhase::SegmentBackward) {
            self.reshard_all_but(&[Some(unit), next.as_ref()]);
            self.prefetched = next.clone();
        }
        [Some(unit), next.as_ref()].into_iter().flatten().for_each(|unit| self.unshard(unit));
        self.current = Some(Rc::clone(unit));
    }

    /// Prefetches `unit`, whose values have changed, if the next forward pass reads it first.
    fn prefetch_first(&mut self, unit: &Unit) {
        let first = self.forward_order.first().and_then(Weak::upgrade);
        if let Some(first) = first.filter(|first| std::ptr::eq(&**first, unit)) {
            self.unshard(&first);
        }
    }

    /// Begins a checkpointed segment, and returns its start for [`end_segment_forward`](Self::end_segment_forward).
    pub(crate) fn begin_segment_forward(&self) -> usize {
        self.reads.len()
    }

    /// Ends the segment that began at `start`, which backward will recompute.
    pub(crate) fn end_segment_forward(&mut self, start: usize) {
        for read in &mut self.reads[start..] {
            read.is_read_in_backward = true;
            read.segment_start = Some(start);
        }
    }

    /// Prefetches the unit that backward reads after a recomputed segment, whose first unit is `first`.
    pub(crate) fn prefetch_before(&mut self, first: Option<&Weak<Unit>>) {
        let reads = &self.reads[..self.backward_position];
        let index = first.and_then(|first| reads.iter().rposition(|read| read.unit.ptr_eq(first)));
        // The segment may read the unit in several places.
        let start = index.map(|index| reads[index].segment_start.unwrap_or(index));
        self.prefetched = start.and_then(|start| self.next_before(start));
        if let Some(next) = self.prefetched.clone() {
            self.unshard(&next);
        }
    }

    /// Ends the backward of a recomputed segment: reshards the units that only the segment has read.
    pub(crate) fn end_segment_backward(&mut self) {
        let kept = [self.current.clone(), self.prefetched.clone()];
        self.reshard_all_but(&kept.each_ref().map(Option::as_ref));
    }

    fn unshard(&mut self, unit: &Rc<Unit>) {
        unit.start_unshard();
        if !self.unsharded.iter().any(|known| Rc::ptr_eq(known, unit)) {
            self.unsharded.push(Rc::clone(unit));
        }
    }

    fn next_in_forward(&mut self, unit: &Rc<Unit>) -> Option<Rc<Unit>> {
        if self.phase == StepPhase::Forward {
            self.reads.push(UnitRead {
                unit: Rc::downgrade(unit),
                is_read_in_backward: false,
                segment_start: None,
            });
        }
        if self.phase == StepPhase::Forward && self.actions.is_running() {
            return self.actions.next();
        }
        let expected = self.forward_position.map_or(0, |position| position + 1);
        self.forward_position = match self.forward_order.get(expected) {
            Some(known) if is_unit(known, unit) => Some(expected),
            _ => self.forward_order.iter().position(|known| is_unit(known, unit)),
        };
        self.forward_order.get(self.forward_position? + 1)?.upgrade()
    }

    fn next_in_backward(&mut self, unit: &Rc<Unit>) -> Option<Rc<Unit>> {
        let reads = &self.reads[..self.backward_position];
        self.backward_position = reads.iter().rposition(|read| is_unit(&read.unit, unit))?;
        self.next_before(self.backward_position)
    }

    /// Returns the unit that backward reads after the read at `index`, or else the first unit of the next action.
    fn next_before(&self, index: usize) -> Option<Rc<Unit>> {
        self.backward_read_before(index).or_else(|| self.actions.first_of_next())
    }

    /// Returns the unit that backward reads after the read at `index`.
    fn backward_read_before(&self, index: usize) -> Option<Rc<Unit>> {
        self.reads[self.position_before(index)?].unit.upgrade()
    }

    /// Returns the read that backward repeats after the one at `index`: in a segment the first one.
    fn position_before(&self, index: usize) -> Option<usize> {
        let before = self.reads[..index].iter().rposition(|read| read.is_read_in_backward)?;
        Some(self.reads[before].segment_start.unwrap_or(before))
    }

    /// Returns the units that the backward of the current forward pass reads, in order.
    fn units_of_backward(&self) -> impl Iterator<Item = Rc<Unit>> {
        let first = self.position_before(self.reads.len());
        let positions = std::iter::successors(first, |position| self.position_before(*position));
        positions.filter_map(|position| self.reads[position].unit.upgrade())
    }

    fn next_in_recompute(&mut self, unit: &Rc<Unit>) -> Option<Rc<Unit>> {
        let reads = &self.reads[..self.backward_position];
        let index = reads.iter().rposition(|read| is_unit(&read.unit, unit))?;
        // Backward has already passed the reads behind the segment.
        let next =
            reads.get(index + 1).filter(|next| next.segment_start == reads[index].segment_start)?;
        next.unit.upgrade()
    }

    /// Begins another order of reads: that of an evaluation, or of the forward pass after it.
    fn begin_order(&mut self) {
        self.forward_position = None;
        self.reshard_all();
    }

    fn reshard_all(&mut self) {
        self.current = None;
        self.prefetched = None;
        self.unsharded.retain(|unit| !unit.reshard());
    }

    /// Reshards all units except the units of the fields of `needed`, units that are kept, and units whose values are
    /// borrowed at the moment.
    fn reshard_all_but(&mut self, needed: &[Option<&Rc<Unit>>]) {
        let kept: Vec<Rc<Unit>> = match self.phase {
            StepPhase::Evaluate => Vec::new(),
            _ if self.actions.is_running() => {
                self.actions.kept().filter_map(Weak::upgrade).collect()
            }
            _ => self.kept.iter().filter_map(Weak::upgrade).collect(),
        };
        self.unsharded.retain(|unit| {
            let mut needed = needed.iter().flatten().copied().chain(&kept);
            needed.any(|needed| needed.is_of_scope_of(unit)) || !unit.reshard()
        });
    }
}

impl Rank {
    pub(crate) fn prefetcher(&self) -> RefMut<'_, Prefetcher> {
        self.session_state::<RefCell<Prefetcher>>().borrow_mut()
    }
}

impl Unit {
    /// Makes the values readable, at ZeRO stage 3 by an all-gather, and prefetches the unit expected next.
    pub(super) fn unshard(self: &Rc<Unit>) {
        if self.stage() == ZeroStage::Parameters {
            self.rank().prefetcher().unshard_and_prefetch(self);
        }
    }

    /// Notes that backward will read the values, which were just read.
    pub(super) fn note_backward_read(self: &Rc<Unit>) {
        if self.stage() == ZeroStage::Parameters {
            self.rank().prefetcher().note_backward_read(self);
        }
    }

    /// Brings updated values to the ranks that read them: starts their all-gather at ZeRO stages 1 and 2, and at stage
    /// 3 if the next forward pass reads this unit first.
    pub(crate) fn publish_values(&self) {
        self.start_publish();
        if self.stage() == ZeroStage::Parameters {
            self.rank().prefetcher().prefetch_first(self);
        }
    }
}
