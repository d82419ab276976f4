//! Losses of micro-batches after the first one.

use super::{Accumulating, Gradients, Losses};

/// Losses of a micro-batch after the first one, whose gradients are added to those in `State`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to `{State}` gradients",
    label = "not the losses of another micro-batch",
    note = "the first of several micro-batches is `loss.accumulate()`, the last one `gradients.backward(loss)`: after it the \
            sum over the ranks has begun, and no other can be added",
    note = "of weighted losses, each has the count of the step in every micro-batch: `a.weighted_over(1.0, &tokens)`; losses \
            without weights are divided by the count of all of them"
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
