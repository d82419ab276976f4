//! Uses of units that a forward pass has recorded for its backward.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::context::Rank;

use super::backward_pass::BackwardPass;
use super::prefetch::UnitRead;
use super::unit::Unit;

/// State of a forward pass that its backward needs from the units of a rank: the recorded uses, and the order of reads.
///
/// Several forward passes can be recorded before the backward of the first one. Each has its own state, and that of the
/// current one is kept by the rank.
#[derive(Default)]
pub(crate) struct ForwardRecord {
    uses: UseCounts,
    reads: Vec<UnitRead>,
}

/// The number of recorded uses of each unit whose backward functions have not run: at zero, its gradient of this
/// forward pass is complete.
#[derive(Default)]
struct UseCounts(Vec<(Weak<Unit>, Rc<Cell<usize>>)>);

impl UseCounts {
    /// Returns the count of `unit`. Consecutive uses are mostly of the same unit, which is found first.
    fn count_of(&mut self, unit: &Rc<Unit>) -> &Rc<Cell<usize>> {
        let is_unit = |(known, _): &(Weak<Unit>, _)| std::ptr::eq(known.as_ptr(), Rc::as_ptr(unit));
        let index = self.0.iter().rposition(is_unit).unwrap_or_else(|| {
            self.0.push((Rc::downgrade(unit), Rc::default()));
            self.0.len() - 1
        });
        &self.0[index].1
    }
}

impl Rank {
    /// Exchanges the state of the current forward pass with `other`, that of another one.
    pub(crate) fn swap_forward_record(&self, other: &mut ForwardRecord) {
        std::mem::swap(&mut *self.use_counts().borrow_mut(), &mut other.uses);
        self.prefetcher().swap_reads(&mut other.reads);
    }

    /// Removes the counts of units that have no uses left.
    pub(super) fn prune_use_counts(&self) {
        self.use_counts().borrow_mut().0.retain(|(_, count)| count.get() > 0);
    }

    fn use_counts(&self) -> &RefCell<UseCounts> {
        self.session_state()
    }
}

/// A use of a unit that is recorded for backward. It counts until its backward function has run, or until it is
/// dropped.
pub(crate) struct UnitUse(Rc<CountedUse>);

/// The count of a use, known to the recorded operation too: a backward that does not reach the operation suspends it.
pub(crate) struct CountedUse {
    count: Rc<Cell<usize>>,
    state: Cell<UseState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UseState {
    Counted,
    Suspended,
    Done,
}

impl UnitUse {
    /// Returns the count, for the recorded operation.
    pub(crate) fn counted(&self) -> Rc<CountedUse> {
        Rc::clone(&self.0)
    }

    /// Counts the use as done, and after the last one of this forward pass starts the gradient reduction that is due.
    pub(crate) fn finish_use(&self, unit: &Rc<Unit>, backward: &BackwardPass) {
        self.discard();
        if self.0.count.get() == 0 {
            backward.reduce_gradient_of(unit);
        }
    }

    /// Counts the use as done without a gradient.
    pub(crate) fn discard(&self) {
        self.0.enter(UseState::Done);
    }
}

impl Drop for UnitUse {
    fn drop(&mut self) {
        self.discard();
    }
}

impl CountedUse {
    /// Does not count the use, unless it is done, until it is [resumed](Self::resume): the running backward adds
    /// nothing to the gradient by it.
    pub(crate) fn suspend(&self) {
        if self.state.get() == UseState::Counted {
            self.enter(UseState::Suspended);
        }
    }

    /// Counts a suspended use again.
    pub(crate) fn resume(&self) {
        if self.state.get() == UseState::Suspended {
            self.enter(UseState::Counted);
        }
    }

    fn enter(&self, state: UseState) {
        let counts = |state| usize::from(state == UseState::Counted);
        let before = self.state.replace(state);
        self.count.set(self.count.get() + counts(state) - counts(before));
    }
}

impl Unit {
    /// Counts a use that is recorded for backward.
    pub(crate) fn begin_use(self: &Rc<Unit>) -> UnitUse {
        let mut counts = self.rank().use_counts().borrow_mut();
        let count = Rc::clone(counts.count_of(self));
        count.set(count.get() + 1);
        UnitUse(Rc::new(CountedUse { count, state: Cell::new(UseState::Counted) }))
    }
}
