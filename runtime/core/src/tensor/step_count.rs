//! Counts of the elements of a step, which are known before its first micro-batch.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;

use crate::context::Rank;
use crate::layout::Dims;
use meshwright_comm::Site;
use meshwright_mesh::__internal::shape_name;

/// The number of elements that a loss over `S` counts in all micro-batches of a step, on all ranks, or the sum of their
/// weights.
///
/// Losses with different counts are divided by them before their gradients are added in one buffer, so the counts have
/// to be known before the first backward. They follow from the data: from the targets of the step, for example.
#[derive(Debug)]
pub struct StepCount<S> {
    count: Rc<AnnouncedCount>,
    shape: PhantomData<S>,
}

/// Relative difference of two sums of the same weights.
const ROUNDING: f64 = 1e-9;

/// A count that is announced for a step.
#[derive(Debug)]
pub(super) struct AnnouncedCount {
    /// Number of elements of this rank, as announced.
    own: f64,
    /// Number of elements of all ranks.
    total: f64,
    /// Number of elements of this rank that losses have counted.
    counted: Cell<f64>,
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
        StepCount::announce(rank, own as f64, Location::caller())
    }

    /// Announces the weights of a step: their sum is `own` on this rank, in all its micro-batches, as
    /// [`Weights::total`](super::Weights::total) returns it for each of them. Every rank calls it: one small
    /// all-reduce, as of [`new`](Self::new).
    #[track_caller]
    pub fn of_weights(rank: &Rank, own: f64) -> StepCount<S> {
        StepCount::announce(rank, own, Location::caller())
    }

    #[track_caller]
    fn announce(rank: &Rank, own: f64, line: &'static Location<'static>) -> StepCount<S> {
        let mut total = [own];
        rank.all_reduce_f64(S::VARIES, &Site::here("StepCount::new"), &mut total);
        let count = AnnouncedCount {
            own,
            total: total[0],
            counted: Cell::new(0.0),
            shape: shape_name(S::DIMS),
            line,
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
    pub(super) fn add_counted(&self, elements: f64) {
        self.counted.set(self.counted.get() + elements);
    }

    /// Checks that the losses have counted what is announced.
    #[track_caller]
    pub(super) fn check_complete(&self) {
        let AnnouncedCount { own, counted, shape, line, .. } = self;
        // Sums of weights may be added in another order.
        let difference = (counted.get() - own).abs();
        assert!(
            difference <= ROUNDING * own.abs(),
            "the losses over {shape} have counted {} elements on this rank in this step, but {own} are announced at \
             {line}: each loss would be divided by a number that is not its count; announce the elements of all \
             micro-batches of this rank, again for each loss and each step",
            counted.get(),
        );
    }
}
