//! Comparison of the updates and losses of all ranks: in every step, and when the parameters are used after the last one.

use std::panic::Location;
use std::rc::Rc;

use crate::layout::AxisSet;

use super::rank::Rank;

impl Rank {
    /// Notes an update by `rule`, a name with options, with learning rate `lr`, of gradients that are multiplied by `factor`.
    pub(crate) fn note_update(&self, rule: &Rc<str>, lr: f64, factor: f32) {
        self.step_exchange().updates.add_update(rule, lr, factor);
    }

    /// Notes a loss that is differentiated at `line`, whose `sum` is the same on ranks with equal positions along `varies`.
    pub(crate) fn note_loss(&self, sum: f64, varies: AxisSet, line: &'static Location<'static>) {
        self.step_exchange().losses.add_loss(sum, varies, line);
    }

    /// Compares the updates that the ranks have applied so far, of which different ones would leave the ranks with different
    /// models, and the losses since the last comparison. Every rank calls it.
    ///
    /// # Panics
    /// If a rank has left out or repeated an update, or has applied another one, on all ranks alike; and if a loss differs
    /// between ranks on which it is the same by its type.
    #[track_caller]
    pub(crate) fn compare_updates(&self) {
        self.step_exchange().run(self.comms());
    }

    /// Compares the updates that no later step compares, before the parameters are saved or exported, and when the ranks end.
    /// Without a step there is nothing to compare, and ranks may end at different times. Every rank calls it.
    ///
    /// An evaluation is no such place: a rank may evaluate alone if it holds everything that it reads.
    ///
    /// # Panics
    /// As [`compare_updates`](Self::compare_updates).
    #[track_caller]
    pub(crate) fn compare_last_updates(&self) {
        if self.step_exchange().has_run() {
            self.compare_updates();
        }
    }

    /// Announces that this rank cannot train on another step: its data have ended. All ranks learn of it in the next
    /// `Gradients::reduce`, in whose exchange it takes no time, and can end the run after the same step.
    pub(crate) fn announce_last_step(&self) {
        self.step_exchange().announce_last_step();
    }

    /// Returns true if a rank had announced its last step at the latest `Gradients::reduce`; the same on all ranks.
    pub(crate) fn is_last_step(&self) -> bool {
        self.step_exchange().is_last_step()
    }
}
