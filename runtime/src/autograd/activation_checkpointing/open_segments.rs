//! The checkpointed segments that a rank is computing: results saved in forward, and taken in recomputation.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::backend::Buffer;
use crate::context::Rank;
use crate::fsdp::Unit;

use super::segment::CheckpointedSegment;

/// Checkpointed segments that a rank is computing, innermost last.
#[derive(Default)]
pub(crate) struct OpenSegments {
    open: RefCell<Vec<OpenSegment>>,
    /// Number of open segments that are being recomputed.
    recomputing: Cell<usize>,
    recomputed_flops: Cell<u64>,
    /// True during an evaluation, which belongs to no segment: nothing that it computes is saved or recomputed.
    is_outside: Cell<bool>,
}

enum OpenSegment {
    /// Forward, with the results saved so far, in order.
    Forward { segment: Rc<CheckpointedSegment>, saved: VecDeque<SavedResults> },
    /// Recomputation, with the saved results not yet taken.
    Recompute { segment: Rc<CheckpointedSegment>, saved: VecDeque<SavedResults> },
}

/// Results of one operation, the output first.
pub(super) type SavedResults = Vec<Arc<Buffer>>;

impl Rank {
    pub(crate) fn segments(&self) -> &OpenSegments {
        self.session_state()
    }

    /// Returns the FLOPs of recomputation in backward so far.
    pub fn recomputed_flops(&self) -> u64 {
        self.segments().recomputed_flops.get()
    }
}

impl OpenSegments {
    /// Returns true if the rank is recomputing a segment.
    pub(crate) fn is_recomputing(&self) -> bool {
        self.recomputing.get() > 0
    }

    /// Begins an evaluation outside of all segments; returns the state to [return](Self::return_to_all) to.
    pub(crate) fn leave_all(&self) -> bool {
        self.is_outside.replace(true)
    }

    /// Ends such an evaluation.
    pub(crate) fn return_to_all(&self, is_outside: bool) {
        self.is_outside.set(is_outside);
    }

    /// Returns true if no segment is being computed.
    pub(crate) fn is_none_open(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Counts FLOPs of recomputation, also those of a replayed CUDA graph.
    pub(crate) fn count_flops(&self, flops: u64) {
        self.recomputed_flops.set(self.recomputed_flops.get() + flops);
    }

    /// Returns the segment in whose forward the rank is, which is not recorded.
    pub(crate) fn in_forward(&self) -> Option<Rc<CheckpointedSegment>> {
        match self.open.borrow().last() {
            Some(OpenSegment::Forward { segment, .. }) if !self.is_outside.get() => {
                Some(Rc::clone(segment))
            }
            _ => None,
        }
    }

    /// Returns true if an open segment saves the results of operations of the field at `path`, or has saved them.
    pub(crate) fn saves(&self, path: &str) -> bool {
        if self.is_outside.get() {
            return false;
        }
        let open = self.open.borrow();
        let is_forward = |open: &&OpenSegment| matches!(open, OpenSegment::Forward { .. });
        let recomputed = open.iter().filter(|open| !is_forward(open));
        recomputed.chain(open.last().filter(is_forward)).any(|open| match open {
            OpenSegment::Forward { segment, .. } | OpenSegment::Recompute { segment, .. } => {
                segment.keep.saves(path)
            }
        })
    }

    /// Returns the output of an operation that belongs to the field at `path`, and the results that its backward reads
    /// besides: saved by a segment that is being recomputed, or computed. Results that the segment in forward saves are
    /// added to it.
    pub(crate) fn saved_or_compute<const N: usize>(
        &self,
        path: &str,
        compute: impl FnOnce() -> (Buffer, [Buffer; N]),
    ) -> (Arc<Buffer>, [Arc<Buffer>; N]) {
        if self.is_outside.get() {
            let (output, results) = compute();
            return (Arc::new(output), results.map(Arc::new));
        }
        let taken = self.open.borrow_mut().iter_mut().find_map(|open| match open {
            OpenSegment::Recompute { segment, saved } if segment.keep.saves(path) => {
                saved.pop_front()
            }
            _ => None,
        });
        let (output, results) = match taken {
            Some(taken) => split_output(taken).unwrap_or_else(|| {
                unreachable!("`{path}` runs the same operations in the same order again")
            }),
            None => {
                let (output, results) = compute();
                (Arc::new(output), results.map(Arc::new))
            }
        };
        if let Some(OpenSegment::Forward { segment, saved }) = self.open.borrow_mut().last_mut()
            && segment.keep.saves(path)
        {
            saved.push_back([&output].into_iter().chain(&results).map(Arc::clone).collect());
        }
        (output, results)
    }

    /// Begins the forward of a segment.
    pub(super) fn begin_forward(&self, rank: &Rank, segment: &Rc<CheckpointedSegment>) {
        let segment = Rc::clone(segment);
        self.open.borrow_mut().push(OpenSegment::Forward { segment, saved: VecDeque::new() });
        rank.read_log().begin_scope(true);
    }

    /// Ends the forward of a segment, and returns the saved results, and the units whose values it has read.
    pub(super) fn end_forward(&self, rank: &Rank) -> (VecDeque<SavedResults>, Vec<Weak<Unit>>) {
        let units = rank.read_log().end_scope();
        match self.open.borrow_mut().pop() {
            Some(OpenSegment::Forward { saved, .. }) => (saved, units),
            _ => unreachable!("the forward of a segment ends after it has begun"),
        }
    }

    /// Begins the recomputation of a segment with the results that it has saved.
    pub(super) fn begin_recompute(
        &self,
        rank: &Rank,
        segment: Rc<CheckpointedSegment>,
        saved: VecDeque<SavedResults>,
    ) {
        self.open.borrow_mut().push(OpenSegment::Recompute { segment, saved });
        rank.read_log().begin_scope(false);
        self.recomputing.set(self.recomputing.get() + 1);
    }

    /// Ends the recomputation of a segment, which took `flops`.
    pub(super) fn end_recompute(&self, rank: &Rank, flops: u64) {
        rank.read_log().end_scope();
        self.open.borrow_mut().pop();
        self.recomputing.set(self.recomputing.get() - 1);
        self.count_flops(flops);
    }
}

/// Splits the saved results of an operation into its output and `N` others.
fn split_output<const N: usize>(results: SavedResults) -> Option<(Arc<Buffer>, [Arc<Buffer>; N])> {
    let mut results = results.into_iter();
    let (output, others) = (results.next()?, [(); N].map(|()| results.next()));
    let is_complete = others.iter().all(Option::is_some) && results.next().is_none();
    is_complete.then(|| (output, others.map(|result| result.expect("all are there"))))
}
