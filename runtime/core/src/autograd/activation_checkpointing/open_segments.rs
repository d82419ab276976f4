//! The checkpointed segments that a rank is computing: results saved in forward, and taken in recomputation.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::context::Rank;
use crate::fsdp::Unit;
use crate::promise::SegmentProgram;
use meshwright_backend::{Buffer, Element};

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
    /// Number of segments that were begun so far.
    begun: Cell<u64>,
}

/// One run of a segment: its forward pass, or its recomputation.
#[derive(Clone)]
pub(in crate::autograd) struct SegmentRun {
    segment: Rc<CheckpointedSegment>,
    number: u64,
}

impl PartialEq for SegmentRun {
    fn eq(&self, other: &SegmentRun) -> bool {
        self.number == other.number
    }
}

impl SegmentRun {
    /// Returns the path of the segment.
    pub(in crate::autograd) fn path(&self) -> &str {
        &self.segment.path
    }
}

struct OpenSegment {
    number: u64,
    segment: Rc<CheckpointedSegment>,
    phase: SegmentPhase,
    /// In forward the results saved so far, in order; in recomputation those not yet taken.
    saved: VecDeque<SavedResults>,
    program: SegmentProgram,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentPhase {
    Forward,
    Recompute,
}

/// State of a segment after its forward pass.
pub(super) struct SegmentForward {
    pub(super) saved: VecDeque<SavedResults>,
    /// Units whose values it has read.
    pub(super) units: Vec<Weak<Unit>>,
    pub(super) program: SegmentProgram,
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

    /// Sets whether what runs is outside of all segments, as an evaluation is, and returns the previous state.
    pub(crate) fn set_outside(&self, is_outside: bool) -> bool {
        self.is_outside.replace(is_outside)
    }

    /// Returns true if no segment is being computed.
    pub(crate) fn is_none_open(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Counts FLOPs of recomputation, also in a replayed CUDA graph.
    pub(crate) fn count_flops(&self, flops: u64) {
        self.recomputed_flops.set(self.recomputed_flops.get() + flops);
    }

    /// Returns the segment in whose forward the rank is, which is not recorded.
    pub(crate) fn in_forward(&self) -> Option<Rc<CheckpointedSegment>> {
        let open = self.open.borrow();
        let in_forward = open.last().filter(|open| open.phase == SegmentPhase::Forward);
        in_forward.filter(|_| !self.is_outside.get()).map(|open| Rc::clone(&open.segment))
    }

    /// Returns the run of the innermost open segment.
    pub(in crate::autograd) fn innermost(&self) -> Option<SegmentRun> {
        let open = self.open.borrow();
        let run = |open: &OpenSegment| SegmentRun {
            segment: Rc::clone(&open.segment),
            number: open.number,
        };
        open.last().filter(|_| !self.is_outside.get()).map(run)
    }

    /// Notes that an operation of the open segments uses the parameter at `path`.
    pub(crate) fn note_param(&self, path: &str) {
        self.note(|program| program.add_param(path));
    }

    /// Notes numbers from the host that the open segments use.
    pub(crate) fn note_numbers<T: Element>(&self, numbers: &[T]) {
        if !self.is_none_open() {
            let hash = xxh3_64(bytemuck::cast_slice(numbers));
            self.note(|program| program.add_number(hash));
        }
    }

    fn note(&self, add: impl Fn(&mut SegmentProgram)) {
        if !self.is_outside.get() {
            self.open.borrow_mut().iter_mut().for_each(|open| add(&mut open.program));
        }
    }

    /// Returns true if an open segment saves the results of operations of the field at `path`, or has saved them.
    pub(crate) fn saves(&self, path: &str) -> bool {
        if self.is_outside.get() {
            return false;
        }
        let open = self.open.borrow();
        let is_forward = |open: &&OpenSegment| open.phase == SegmentPhase::Forward;
        let recomputed = open.iter().filter(|open| !is_forward(open));
        recomputed.chain(open.last().filter(is_forward)).any(|open| open.segment.keep.saves(path))
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
            OpenSegment { segment, phase: SegmentPhase::Recompute, saved, .. }
                if segment.keep.saves(path) =>
            {
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
        if let Some(open) = self.open.borrow_mut().last_mut()
            && open.phase == SegmentPhase::Forward
            && open.segment.keep.saves(path)
        {
            open.saved.push_back([&output].into_iter().chain(&results).map(Arc::clone).collect());
        }
        (output, results)
    }

    /// Begins the forward of a segment.
    pub(super) fn begin_forward(&self, rank: &Rank, segment: &Rc<CheckpointedSegment>) {
        self.begin(Rc::clone(segment), SegmentPhase::Forward, VecDeque::new());
        rank.read_log().begin_scope(true);
    }

    /// Ends the forward of a segment.
    pub(super) fn end_forward(&self, rank: &Rank) -> SegmentForward {
        let units = rank.read_log().end_scope();
        let OpenSegment { saved, program, .. } = self.end();
        SegmentForward { saved, units, program }
    }

    /// Begins the recomputation of a segment with the results that it has saved.
    pub(super) fn begin_recompute(
        &self,
        rank: &Rank,
        segment: Rc<CheckpointedSegment>,
        saved: VecDeque<SavedResults>,
    ) {
        self.begin(segment, SegmentPhase::Recompute, saved);
        rank.read_log().begin_scope(false);
        self.recomputing.set(self.recomputing.get() + 1);
    }

    /// Ends the recomputation of a segment, which took `flops`, and returns its program.
    pub(super) fn end_recompute(&self, rank: &Rank, flops: u64) -> SegmentProgram {
        rank.read_log().end_scope();
        self.recomputing.set(self.recomputing.get() - 1);
        self.count_flops(flops);
        self.end().program
    }

    fn begin(
        &self,
        segment: Rc<CheckpointedSegment>,
        phase: SegmentPhase,
        saved: VecDeque<SavedResults>,
    ) {
        let (program, number) = (SegmentProgram::default(), self.begun.get());
        self.begun.set(number + 1);
        self.open.borrow_mut().push(OpenSegment { number, segment, phase, saved, program });
    }

    fn end(&self) -> OpenSegment {
        let Some(open) = self.open.borrow_mut().pop() else {
            unreachable!("a segment ends after it has begun");
        };
        open
    }
}

/// Splits the saved results of an operation into its output and `N` others.
fn split_output<const N: usize>(results: SavedResults) -> Option<(Arc<Buffer>, [Arc<Buffer>; N])> {
    let mut results = results.into_iter();
    let (output, others) = (results.next()?, [(); N].map(|()| results.next()));
    let is_complete = others.iter().all(Option::is_some) && results.next().is_none();
    is_complete.then(|| (output, others.map(|result| result.expect("all are there"))))
}
