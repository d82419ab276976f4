//! Counts of the elements of a step, which are known before its first micro-batch.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;

use crate::context::Rank;
use crate::layout::Dims;
use meshwright_comm::Site;
use meshwright_mesh::__internal::shape_name;

/// The number of elements that a loss over `S` counts in all micro-batches of a step, on all ranks.
///
/// Losses with different counts are divided by them before their gradients are added in one buffer, so the counts have
/// to be known before the first backward. They follow from the data: from the targets of the step, for example.
#[derive(Debug)]
pub struct StepCount<S> {
    count: Rc<AnnouncedCount>,
    shape: PhantomData<S>,
}

/// A count that is announced for a step.
#[derive(Debug)]
pub(super) struct AnnouncedCount {
    /// Number of elements of this rank, as announced.
    own: u64,
    /// Number of elements of all ranks.
    total: f64,
    /// Number of elements of this rank that losses have counted.
    counted: Cell<u64>,
    /// Name of the shape.
    shape: String,
    /// Line of the announcement.
    line: &'static Location<'static>,
}

impl<S: Dims> StepCount<S> {
    /// Announces the elements of a step: `own` of them on this rank, in all its micro-batches, such as the targets of
    /// its rows that are not ignored. Every rank calls it: one small all-reduce over the axes along which `S` varies.
    #[track_caller]
    pub fn new(rank: &Rank, own: u64) -> StepCount<S> {
        let mut total = [own as f64];
        rank.all_reduce_f64(S::VARIES, &Site::here("StepCount::new"), &mut total);
        let count = AnnouncedCount {
            own,
            total: total[0],
            counted: Cell::new(0),
            shape: shape_name(S::DIMS),
            line: Location::caller(),
        };
        StepCount { count: Rc::new(count), shape: PhantomData }
    }

    /// Returns the announcement, to which losses that are differentiated add their elements.
    pub(super) fn announced(&self) -> Rc<AnnouncedCount> {
        Rc::clone(&self.count)
    }
}

impl AnnouncedCount {
    /// Returns the number of elements of all ranks.
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    /// Adds the elements of a loss that is differentiated.
    pub(super) fn add_counted(&self, elements: u64) {
        self.counted.set(self.counted.get() + elements);
    }

    /// Checks that the losses have counted what is announced.
    #[track_caller]
    pub(super) fn check_complete(&self) {
        let AnnouncedCount { own, counted, shape, line, .. } = self;
        assert!(
            counted.get() == *own,
            "the losses over {shape} have counted {} elements on this rank in this step, but {own} are announced at \
             {line}: each loss would be divided by a number that is not its count; announce the elements of all \
             micro-batches of this rank, again for each loss and each step",
            counted.get(),
        );
    }
}
