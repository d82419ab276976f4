//! Deferred reads of parameters, whose numbers are computed before the parameters change.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::context::Rank;

/// A deferred operation that will read parameters.
pub(crate) trait PendingRead {
    /// Computes the numbers now, unless that has happened, without communication, and without recording an operation:
    /// the ranks may hold different results.
    fn compute_numbers(self: Rc<Self>);
}

/// The pending reads of a rank, in the order of their creation.
#[derive(Default)]
pub(crate) struct PendingReads {
    reads: RefCell<Vec<Weak<dyn PendingRead>>>,
    /// Number of entries at which the entries of dropped operations are removed.
    limit: Cell<usize>,
}

impl PendingReads {
    /// Adds a read. It need not be removed when it is computed or dropped.
    pub(crate) fn add(&self, read: Weak<dyn PendingRead>) {
        const LEAST: usize = 1024;
        let mut reads = self.reads.borrow_mut();
        if reads.len() >= self.limit.get().max(LEAST) {
            reads.retain(|read| read.strong_count() > 0);
            self.limit.set(2 * reads.len());
        }
        reads.push(read);
    }

    fn compute_all(&self) {
        let reads = self.reads.take();
        reads.iter().filter_map(Weak::upgrade).for_each(PendingRead::compute_numbers);
    }
}

impl Rank {
    pub(crate) fn pending_reads(&self) -> &PendingReads {
        self.session_state()
    }

    /// Computes the numbers of what has been deferred, with the present values of parameters. Called before any of them
    /// changes: a change of one unit may free the memory of others, or be none on this rank.
    pub(crate) fn compute_pending_reads(&self) {
        self.pending_reads().compute_all();
    }
}
