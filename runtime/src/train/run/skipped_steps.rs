//! Steps whose updates are left out, with `--on-nan skip=N`.

use crate::train::config::OnNan;
use crate::train::console::print_line;
use crate::train::step::NonFinite;
use crate::train::{Error, Result, Task};

use super::divergence::divergence_origin;
use super::rank_loop::RankLoop;

impl<T: Task> RankLoop<'_, T> {
    /// Counts `step` (from 0), which has left out its update because of `found`, or has applied it. Every rank calls
    /// it.
    ///
    /// # Errors
    /// The last step that may be left out in a row. A checkpoint of the state before it is saved if `--save` is given.
    pub(super) fn count_skipped(&mut self, step: u64, found: Option<&NonFinite>) -> Result<()> {
        let (Some(found), OnNan::Skip(limit)) = (found, self.plan.config.on_nan) else {
            self.skipped.in_a_row = 0;
            return Ok(());
        };
        self.skipped.in_a_row += 1;
        let in_a_row = self.skipped.in_a_row;
        if in_a_row == limit.get() {
            return Err(match self.stop_diverged(step, found) {
                Error::Diverged(text) => Error::Diverged(format!(
                    "{text}. Such steps in a row: {in_a_row}, which --on-nan skip={limit} takes for the end of the run"
                )),
                error => error,
            });
        }
        self.skipped.total += 1;
        let origin = divergence_origin(&self.state.rank, found.local);
        if self.state.rank.index() == 0 {
            let (NonFinite { quantity, value, .. }, total) = (found, self.skipped.total);
            print_line(&format!(
                "warning: step {}: the {quantity} is {value} {origin}; its update is left out (in a row: {in_a_row} of \
                 the {limit} that end the run; in all: {total})",
                step + 1
            ));
        }
        Ok(())
    }

    /// Returns the number of steps whose updates were left out, if updates may be, or were.
    pub(super) fn reported_skips(&self) -> Option<u64> {
        let total = self.skipped.total;
        (total > 0 || self.plan.config.on_nan != OnNan::Stop).then_some(total)
    }
}
