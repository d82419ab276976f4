//! The regions that are open on a rank: what is kept of their first run, and who reads parameters in it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::backend::Buffer;

use crate::fsdp::Unit;

use super::recompute::Region;

/// The regions that are open on a rank.
#[derive(Default)]
pub(crate) struct Regions {
    open: RefCell<Vec<Open>>,
    replaying: Cell<usize>,
    flops: Cell<u64>,
}

pub(crate) enum Open {
    /// Computed for the first time: what is kept, in order, and whose parameters are read.
    First { region: Rc<Region>, kept: VecDeque<Kept>, readers: Vec<Weak<Unit>> },
    /// Computed once more: what was kept and not yet taken.
    Again { region: Rc<Region>, kept: VecDeque<Kept> },
}

/// Results of one operation.
pub(crate) type Kept = Vec<Arc<Buffer>>;

impl Regions {
    /// Whether the rank computes a region once more.
    pub(crate) fn is_replaying(&self) -> bool {
        self.replaying.get() > 0
    }

    /// FLOPs of all that was computed once more.
    pub(crate) fn flops(&self) -> u64 {
        self.flops.get()
    }

    /// What was computed once more in recorded work is computed again.
    pub(crate) fn count_flops(&self, flops: u64) {
        self.flops.set(self.flops.get() + flops);
    }

    /// The segment that is computed for the first time, without being recorded, if one is.
    pub(crate) fn first_run(&self) -> Option<Rc<Region>> {
        match self.open.borrow().last() {
            Some(Open::First { region, .. }) => Some(Rc::clone(region)),
            _ => None,
        }
    }

    /// Notes that the values of `unit` are read.
    pub(crate) fn note_reader(&self, unit: &Weak<Unit>) {
        if let Some(Open::First { readers, .. }) = self.open.borrow_mut().last_mut()
            && !readers.iter().any(|known| known.ptr_eq(unit))
        {
            readers.push(Weak::clone(unit));
        }
    }

    /// Whether an open region keeps the results of operations of the field at `path`, or has kept them.
    pub(crate) fn keeps(&self, path: &str) -> bool {
        let open = self.open.borrow();
        let is_first = |open: &&Open| matches!(open, Open::First { .. });
        let again = open.iter().filter(|open| !is_first(open));
        again.chain(open.last().filter(is_first)).any(|open| match open {
            Open::First { region, .. } | Open::Again { region, .. } => region.keep.keeps(path),
        })
    }

    /// The results of an operation that belongs to the field at `path`: computed, or taken from what a region that is
    /// computed once more has kept of the first time.
    pub(crate) fn kept<const N: usize>(
        &self,
        path: &str,
        compute: impl FnOnce() -> [Buffer; N],
    ) -> [Arc<Buffer>; N] {
        let taken = self.open.borrow_mut().iter_mut().find_map(|open| match open {
            Open::Again { region, kept } if region.keep.keeps(path) => kept.pop_front(),
            _ => None,
        });
        let results: [Arc<Buffer>; N] = match taken {
            Some(taken) => taken.try_into().unwrap_or_else(|_| {
                unreachable!("`{path}` runs the same operations in the same order again")
            }),
            None => compute().map(Arc::new),
        };
        if let Some(Open::First { region, kept, .. }) = self.open.borrow_mut().last_mut()
            && region.keep.keeps(path)
        {
            kept.push_back(results.to_vec());
        }
        results
    }

    /// A region is computed once more from here on.
    pub(crate) fn begin_again(&self, region: Rc<Region>, kept: VecDeque<Kept>) {
        self.open(Open::Again { region, kept });
        self.replaying.set(self.replaying.get() + 1);
    }

    /// A region was computed once more, which took `flops`.
    pub(crate) fn end_again(&self, flops: u64) {
        self.close();
        self.replaying.set(self.replaying.get() - 1);
        self.count_flops(flops);
    }

    pub(crate) fn open(&self, open: Open) {
        self.open.borrow_mut().push(open);
    }

    pub(crate) fn close(&self) -> (VecDeque<Kept>, Vec<Weak<Unit>>) {
        match self.open.borrow_mut().pop() {
            Some(Open::First { kept, readers, .. }) => (kept, readers),
            Some(Open::Again { kept, .. }) => (kept, Vec::new()),
            None => unreachable!("a region is closed after it was opened"),
        }
    }
}
