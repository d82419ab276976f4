//! Gradient accumulation: losses of micro-batches after the first one.

use super::{Accumulating, Gradients, Losses, Pending};

impl<State> Gradients<State> {
    /// Accumulates the gradient of a micro-batch that is not the last one.
    ///
    /// Losses of different shapes are pooled: the result is the gradient of the sum of all losses, divided by the
    /// number of elements that all of them count. [Weighted](super::Loss::weighted_over) losses are divided by their
    /// own counts.
    ///
    /// # Panics
    /// If another backward has overwritten these gradients.
    #[track_caller]
    pub fn accumulate(self, loss: impl MicroBatchLoss<State>) -> Gradients<State> {
        self.pass.check_valid();
        loss.add_to(self, false).with_state()
    }

    /// Accumulates the gradient of the last micro-batch, and starts the reduction of the gradient of each FSDP unit as
    /// soon as it is complete: once per step, or from ZeRO stage 2 on, where no rank keeps all of a gradient, once per
    /// micro-batch.
    ///
    /// # Panics
    /// If another backward has overwritten these gradients, and if a weighted loss has not counted what is announced.
    #[track_caller]
    pub fn backward(self, loss: impl MicroBatchLoss<State>) -> Gradients<Pending> {
        self.pass.check_valid();
        loss.add_to(self, true).with_state()
    }
}

/// Losses of a micro-batch after the first one, whose gradients are added to those in `State`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to `{State}` gradients",
    label = "not the losses of another micro-batch",
    note = "the first of several micro-batches is `loss.accumulate()`, the last one `gradients.backward(loss)`: after \
            it the sum over the ranks has begun, and no other can be added",
    note = "of weighted losses, each has the count of the step in every micro-batch: `a.weighted_over(1.0, &tokens)`; \
            losses without weights are divided by the count of all of them"
)]
pub trait MicroBatchLoss<State> {
    #[doc(hidden)]
    #[track_caller]
    fn add_to(self, gradients: Gradients<State>, last: bool) -> Gradients<Accumulating>;
}

#[diagnostic::do_not_recommend]
impl<L: Into<Losses>> MicroBatchLoss<Accumulating> for L {
    #[track_caller]
    fn add_to(self, gradients: Gradients<Accumulating>, last: bool) -> Gradients<Accumulating> {
        gradients.add(self.into(), last)
    }
}
