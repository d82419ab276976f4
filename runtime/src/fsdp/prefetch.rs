//! Which units are gathered when, at ZeRO level 3: the one in use, and the one expected next.

use std::rc::{Rc, Weak};

use super::unit::Unit;

/// The units whose values are gathered on this rank, and in which order they are used.
///
/// A unit is gathered when its values are first read, stays while no other unit's are read, and is freed then. The
/// order of a forward pass is remembered: going back it says which unit comes next, and so it does in the next step's
/// forward pass; that unit is gathered ahead. While a region is computed once more nothing is freed, because its
/// backward follows at once.
#[derive(Default)]
pub(crate) struct Gathering {
    phase: Phase,
    /// The order of the last forward pass that was differentiated, and how far the present one has come in it.
    known: Vec<Weak<Unit>>,
    position: Option<usize>,
    /// The order of the present forward pass, until it is differentiated.
    passed: Vec<Passage>,
    /// Backward has come down to here in `passed`.
    undone: usize,
    current: Option<Rc<Unit>>,
    ahead: Option<Rc<Unit>>,
    gathered: Vec<Rc<Unit>>,
}

/// What the rank is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// A forward pass that will be undone.
    #[default]
    Forward,
    /// A forward pass that nothing is recorded of.
    Evaluate,
    /// Backward.
    Backward,
    /// Forward once more within backward.
    Replay,
    /// The backward of what was computed once more.
    Undo,
}

/// A stretch of a forward pass in which one unit's values were read.
struct Passage {
    unit: Weak<Unit>,
    /// Whether backward will read them, too.
    comes_back: bool,
    /// Where the region began that this is part of, and that backward will compute once more from there.
    region: Option<usize>,
}

impl Gathering {
    /// Says what the rank does from now on, and gives what it did before.
    pub(crate) fn begin(&mut self, phase: Phase) -> Phase {
        let before = std::mem::replace(&mut self.phase, phase);
        match (before, phase) {
            (Phase::Forward, Phase::Backward) => self.undone = self.passed.len(),
            (Phase::Backward, Phase::Forward) => {
                self.known = self.passed.drain(..).map(|passage| passage.unit).collect();
                self.position = None;
                self.free_all();
            }
            (Phase::Evaluate, Phase::Forward) | (Phase::Forward, Phase::Evaluate) => {
                self.position = None;
                self.free_all();
            }
            _ => {}
        }
        before
    }

    /// What the rank is doing.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Notes that the values of `unit`, which were just read, will be read in backward.
    pub(crate) fn will_come_back(&mut self, unit: &Rc<Unit>) {
        let passage = self.passed.iter_mut().rev().find(|passage| is(&passage.unit, unit));
        if let Some(passage) = passage {
            passage.comes_back = true;
        }
    }

    /// The values of `unit` are about to be read: gathers them and those expected next, frees others.
    pub(crate) fn enter(&mut self, unit: &Rc<Unit>) {
        if self.current.as_ref().is_some_and(|current| Rc::ptr_eq(current, unit)) {
            return;
        }
        let next = match self.phase {
            Phase::Forward | Phase::Evaluate => self.step_forward(unit),
            Phase::Backward => self.step_back(unit),
            Phase::Replay => self.step_again(unit),
            // All of the region is there.
            Phase::Undo => None,
        };
        let next = next.filter(|next| !Rc::ptr_eq(next, unit));
        if !matches!(self.phase, Phase::Replay | Phase::Undo) {
            self.free_all_but(&[Some(unit), next.as_ref()]);
            self.ahead = next.clone();
        }
        [Some(unit), next.as_ref()].into_iter().flatten().for_each(|unit| self.gather(unit));
        self.current = Some(Rc::clone(unit));
    }

    /// The values of `unit` are about to be freed: who reads them next gathers them again.
    pub(crate) fn leave(&mut self, unit: &Unit) {
        self.current.take_if(|current| std::ptr::eq(&**current, unit));
    }

    /// The values of `unit` have changed: what a forward pass reads first is gathered at once.
    pub(crate) fn updated(&mut self, unit: &Unit) {
        let first = self.known.first().and_then(Weak::upgrade);
        if let Some(first) = first.filter(|first| std::ptr::eq(&**first, unit)) {
            self.gather(&first);
        }
    }

    /// A region begins, of which nothing is recorded for now. Gives its place, for [`passed_region`](Self::passed_region).
    pub(crate) fn begin_region(&self) -> usize {
        self.passed.len()
    }

    /// The region that began at `start` is over; backward will compute it once more.
    pub(crate) fn passed_region(&mut self, start: usize) {
        for passage in &mut self.passed[start..] {
            passage.comes_back = true;
            passage.region = Some(start);
        }
    }

    /// A region whose first unit is `first` was computed once more: gathers what is needed after its backward.
    pub(crate) fn look_before(&mut self, first: Option<&Weak<Unit>>) {
        let passed = &self.passed[..self.undone];
        let at =
            first.and_then(|first| passed.iter().rposition(|passage| passage.unit.ptr_eq(first)));
        // The region may read it in several places.
        let start = at.map(|at| passed[at].region.unwrap_or(at));
        self.ahead = start.and_then(|start| self.needed_before(start));
        if let Some(next) = self.ahead.clone() {
            self.gather(&next);
        }
    }

    /// A region has been undone: frees what only it had needed.
    pub(crate) fn end_region(&mut self) {
        let kept = [self.current.clone(), self.ahead.clone()];
        self.free_all_but(&kept.each_ref().map(Option::as_ref));
    }

    fn gather(&mut self, unit: &Rc<Unit>) {
        unit.start_gather();
        if !self.gathered.iter().any(|known| Rc::ptr_eq(known, unit)) {
            self.gathered.push(Rc::clone(unit));
        }
    }

    fn step_forward(&mut self, unit: &Rc<Unit>) -> Option<Rc<Unit>> {
        if self.phase == Phase::Forward {
            self.passed.push(Passage {
                unit: Rc::downgrade(unit),
                comes_back: false,
                region: None,
            });
        }
        let expected = self.position.map_or(0, |position| position + 1);
        self.position = match self.known.get(expected) {
            Some(known) if is(known, unit) => Some(expected),
            _ => self.known.iter().position(|known| is(known, unit)),
        };
        self.known.get(self.position? + 1)?.upgrade()
    }

    fn step_back(&mut self, unit: &Rc<Unit>) -> Option<Rc<Unit>> {
        let passed = &self.passed[..self.undone];
        self.undone = passed.iter().rposition(|passage| is(&passage.unit, unit))?;
        self.needed_before(self.undone)
    }

    /// What backward reads after it has undone the passage at `at`.
    fn needed_before(&self, at: usize) -> Option<Rc<Unit>> {
        let passage = self.passed[..at].iter().rev().find(|passage| passage.comes_back)?;
        let first = passage.region.map_or(passage, |start| &self.passed[start]);
        first.unit.upgrade()
    }

    fn step_again(&mut self, unit: &Rc<Unit>) -> Option<Rc<Unit>> {
        let passed = &self.passed[..self.undone];
        let at = passed.iter().rposition(|passage| is(&passage.unit, unit))?;
        // Behind the region lies what has been undone already.
        let next = passed.get(at + 1).filter(|next| next.region == passed[at].region)?;
        next.unit.upgrade()
    }

    fn free_all(&mut self) {
        self.current = None;
        self.ahead = None;
        self.free_all_but(&[]);
    }

    /// What is being read at this moment stays until the next time.
    fn free_all_but(&mut self, kept: &[Option<&Rc<Unit>>]) {
        self.gathered.retain(|unit| {
            let is_kept = kept.iter().flatten().any(|kept| Rc::ptr_eq(kept, unit));
            is_kept || !unit.release()
        });
    }
}

fn is(known: &Weak<Unit>, unit: &Rc<Unit>) -> bool {
    std::ptr::eq(known.as_ptr(), Rc::as_ptr(unit))
}
