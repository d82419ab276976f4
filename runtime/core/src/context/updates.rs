//! Comparison of the updates and losses of all ranks: in every step, and when the parameters are used after the last
//! one.

use std::rc::Rc;

use super::rank::Rank;
use super::step_losses::LossSum;
use super::update_history::AppliedUpdates;

impl Rank {
    /// Notes update `number` by `rule`, a name with options, with learning rate `lr`, of gradients that are multiplied
    /// by `factor`.
    pub(crate) fn note_update(&self, rule: &Rc<str>, lr: f64, factor: f32, number: u64) {
        self.step_exchange().updates.add_update(rule, lr, factor, number);
    }

    /// Notes an update of an average of the parameters, which keeps `decay` of the old average.
    pub(crate) fn note_average(&self, decay: f64) {
        self.step_exchange().updates.add_average(decay);
    }

    /// Compares between ranks:
    ///
    /// - the updates that they have applied so far: different updates would lead to different models;
    /// - the `losses` whose gradients are reduced;
    /// - the training step.
    ///
    /// Every rank calls it.
    ///
    /// # Panics
    /// On all ranks, if one has left out or repeated an update, has applied another one, or is in another step; and if
    /// a loss differs between ranks on which its type makes it equal.
    #[track_caller]
    pub(crate) fn compare_updates(&self, losses: LossSum) {
        self.step_exchange().run(self.comms(), losses, Some(self.peek_step()));
    }

    /// Returns the updates that this rank has applied, to be compared after all ranks have ended.
    #[doc(hidden)]
    pub fn applied_updates(&self) -> AppliedUpdates {
        self.step_exchange().updates.applied()
    }

    /// Compares the updates that no later step compares, before the parameters are saved or exported, and when a run
    /// ends. Without a step there is nothing to compare, and ranks may end at different times. Every rank calls it.
    ///
    /// An evaluation is no such place: a rank may evaluate alone if it holds everything that it reads.
    ///
    /// # Panics
    /// As [`compare_updates`](Self::compare_updates).
    #[track_caller]
    #[doc(hidden)]
    pub fn compare_last_updates(&self) {
        if self.step_exchange().has_run() {
            self.step_exchange().run(self.comms(), LossSum::default(), None);
        }
    }

    /// Announces that this rank cannot train on another step: its data have ended. All ranks learn of it in the next
    /// `Gradients::reduce`, in whose exchange it takes no time, and can end the run after the same step.
    #[doc(hidden)]
    pub fn announce_last_step(&self) {
        self.step_exchange().announce_last_step();
    }

    /// Returns true if a rank had announced its last step at the latest `Gradients::reduce`; the same on all ranks.
    #[doc(hidden)]
    pub fn is_last_step(&self) -> bool {
        self.step_exchange().is_last_step()
    }
}
