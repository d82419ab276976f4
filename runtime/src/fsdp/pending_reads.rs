//! Deferred reads of parameters, which are computed before the parameters change.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::context::Rank;

/// A deferred operation that will read parameters.
pub(crate) trait PendingRead {
    /// Computes the operation now, unless that has happened.
    fn compute(self: Rc<Self>);
}

/// The pending reads of a rank, in the order of their creation.
#[derive(Default)]
pub(crate) struct PendingReads {
    reads: RefCell<Vec<Weak<dyn PendingRead>>>,
    /// Number of entries at which those of dropped operations are removed.
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

    /// Computes all pending reads, the last ones first: they compute those that they are fused with.
    fn compute_all(&self) {
        let reads = self.reads.take();
        reads.iter().rev().filter_map(Weak::upgrade).for_each(PendingRead::compute);
    }
}

impl Rank {
    pub(crate) fn pending_reads(&self) -> &PendingReads {
        self.session_state()
    }

    /// Computes what has been deferred with the present values of parameters, before they change.
    pub(super) fn compute_pending_reads(&self) {
        self.pending_reads().compute_all();
    }
}
