//! Divisors of losses: counts of a step, or of a batch.

use std::rc::Rc;

use crate::layout::Seal;

use super::step_count::AnnouncedCount;

/// Kind of an [`Objective`](super::Objective): one mean over the elements of all losses, in the whole step.
#[derive(Debug)]
pub struct Pooled;

/// Kind of an [`Objective`](super::Objective): losses are divided by their counts in the batch that is differentiated.
#[derive(Debug)]
pub struct OfBatch;

/// Kind of an [`Objective`](super::Objective): losses are divided by their counts in the step; the batch is one of its
/// micro-batches.
#[derive(Debug)]
pub struct OfStep;

/// Counts of a step, whose micro-batches can be accumulated: [`Pooled`] and [`OfStep`].
#[diagnostic::on_unimplemented(
    message = "weighted losses with counts of one micro-batch cannot be accumulated",
    label = "each loss would be divided by the count of its micro-batch, not of the step",
    note = "count the step first, and divide each loss by it: `let tokens = StepCount::new(rank, own);`, \
            `loss.weighted_over(1.0, &tokens)`"
)]
pub trait CountsStep {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl CountsStep for Pooled {
    const SEAL: Seal = Seal::new();
}

impl CountsStep for OfStep {
    const SEAL: Seal = Seal::new();
}

/// Counts of each loss, which has a weight: [`OfBatch`] and [`OfStep`].
#[diagnostic::on_unimplemented(
    message = "losses without weights have no value together",
    label = "each loss is reduced before they are joined: `loss.reduce()`",
    note = "a weighted sum has a value: `(a.weighted(1.0) + b.weighted(0.1)).reduce()`"
)]
pub trait CountsEach {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl CountsEach for OfBatch {
    const SEAL: Seal = Seal::new();
}

impl CountsEach for OfStep {
    const SEAL: Seal = Seal::new();
}

/// The elements by whose number a sum is divided.
pub(super) enum Counting {
    /// All that any loss of the step counts: gradients are divided when they are reduced.
    Pooled,
    /// The elements of the loss itself, in the batch that is differentiated.
    OfBatch,
    /// The elements of the loss itself, in the step.
    OfStep(Rc<AnnouncedCount>),
}

impl Counting {
    /// Returns the divisor of the sum, if it is known before the ranks have counted.
    pub fn known_divisor(&self) -> Option<f64> {
        match self {
            Counting::Pooled => Some(1.0),
            Counting::OfBatch => None,
            Counting::OfStep(count) => Some(count.total()),
        }
    }
}
