//! The promise: a program that compiles computes on every mesh what it computes on one rank. The ranks check at run
//! time what no type can express.
//!
//! | file | what is checked | when |
//! |---|---|---|
//! | `recorded` | values made on the host that are the same on several ranks by their type | first step |
//! | `functions` | calls of user-defined functions, repeated on parts of their operands | first calls, few later |
//! | `segments` | a recomputed segment uses the parameters and numbers of its forward pass | every segment |
//! | `updates`, `losses`, `documents` | updates, training step, losses and documents of tokens | every step |
//!
//! `exchange` is all that the ranks exchange for these in a step: one sum of a fixed number of words, in which the
//! counts and losses of the step travel, too. Texts and numbers of all ranks are gathered for a message only.

mod digests;
mod documents;
mod exchange;
mod functions;
mod losses;
mod recorded;
mod segments;
mod updates;

use std::panic::Location;
use std::rc::Rc;

use crate::context::{Checks, Rank};
use crate::layout::{AxisId, AxisSet};

pub(crate) use functions::{CallCheck, CallKey};
pub(crate) use losses::LossSum;
pub use recorded::DeclaredValues;
pub(crate) use segments::SegmentProgram;
pub use updates::AppliedUpdates;

use exchange::StepExchange;
use recorded::ValueRecord;

/// The checks of one rank.
#[derive(Default)]
struct Promise {
    values: ValueRecord,
    exchange: StepExchange,
}

impl Rank {
    fn promise(&self) -> &Promise {
        self.session_state()
    }

    /// Returns true if the checks of [`Settings::checks`](crate::context::Settings::checks) are made now.
    #[doc(hidden)]
    pub fn makes_checks(&self) -> bool {
        match self.checks() {
            Checks::Off => false,
            Checks::FirstStep => !self.promise().exchange.has_run(),
            Checks::EveryStep => true,
        }
    }

    /// Returns the values that were declared the same on several ranks.
    #[doc(hidden)]
    pub fn declared_values(&self) -> DeclaredValues<'_> {
        DeclaredValues { rank: self, record: &self.promise().values }
    }

    /// Compares the values that were declared the same on several ranks, at the end of the first step: later values are
    /// not compared. Every rank calls it.
    ///
    /// # Panics
    /// If a value differs between ranks on which it was declared the same; on all ranks alike.
    #[track_caller]
    #[doc(hidden)]
    pub fn compare_declared_values(&self) {
        self.declared_values().compare(true);
    }

    /// Compares the values of [`compare_declared_values`](Self::compare_declared_values) that were made so far, before
    /// the first step, whose own values are still to be compared. Every rank calls it.
    ///
    /// # Panics
    /// As [`compare_declared_values`](Self::compare_declared_values).
    #[track_caller]
    #[doc(hidden)]
    pub fn compare_values_before_step(&self) {
        self.declared_values().compare(false);
    }

    /// Notes update `number` by `rule`, a name with options, with learning rate `lr`, of gradients that are multiplied
    /// by `factor`.
    pub(crate) fn note_update(&self, rule: &Rc<str>, lr: f64, factor: f32, number: u64) {
        self.promise().exchange.updates.add_update(rule, lr, factor, number);
    }

    /// Notes an update of an average of the parameters, which keeps `decay` of the old average.
    pub(crate) fn note_average(&self, decay: f64) {
        self.promise().exchange.updates.add_average(decay);
    }

    /// Returns `number`, which is the same on all ranks with equal positions along `axes`, on the first of these ranks,
    /// and 0 on the others: its sum over all ranks is the sum along `axes`.
    pub(crate) fn share_of(&self, axes: AxisSet, number: f64) -> f64 {
        if self.position(AxisSet::ALL.difference(axes)) == 0 { number } else { 0.0 }
    }

    /// Notes that tokens are given documents at `line`, with these starts, which are the same on all ranks with equal
    /// positions along `varies`. What a stage gives to its own tokens may differ from that of other stages.
    pub(crate) fn note_documents(
        &self,
        starts: &[u32],
        varies: AxisSet,
        line: &'static Location<'static>,
    ) {
        if self.records_operations() && self.makes_checks() {
            let stages = if self.is_in_stage() { AxisSet::of(AxisId::Pp) } else { AxisSet::NONE };
            self.promise().exchange.documents.note(starts, varies.union(stages), line);
        }
    }

    /// Sums each of `sums` over all ranks, and compares between ranks:
    ///
    /// - the updates that they have applied so far: different updates would lead to different models;
    /// - the `losses` whose gradients are reduced;
    /// - the documents that were given to tokens since the last exchange;
    /// - the training step.
    ///
    /// Every rank calls it.
    ///
    /// # Panics
    /// On all ranks, if one has left out or repeated an update, has applied another one, or is in another step; and if
    /// a loss differs between ranks on which its type makes it equal.
    #[track_caller]
    pub(crate) fn exchange_step(&self, losses: LossSum, sums: &mut [f64]) {
        self.promise().exchange.run(self, losses, Some(self.peek_step()), sums);
    }

    /// Returns the updates that this rank has applied, to be compared after all ranks have ended.
    #[doc(hidden)]
    pub fn applied_updates(&self) -> AppliedUpdates {
        self.promise().exchange.updates.applied()
    }

    /// Compares the updates that no later step compares, before the parameters are saved or exported, and when a run
    /// ends. Without a step there is nothing to compare, and ranks may end at different times. Every rank calls it.
    ///
    /// An evaluation is no such place: a rank may evaluate alone if it holds everything that it reads.
    ///
    /// # Panics
    /// As [`exchange_step`](Self::exchange_step).
    #[track_caller]
    #[doc(hidden)]
    pub fn compare_last_updates(&self) {
        if self.promise().exchange.has_run() && self.makes_checks() {
            self.promise().exchange.run(self, LossSum::default(), None, &mut []);
        }
    }

    /// Announces that this rank cannot train on another step: its data have ended. All ranks learn of it in the next
    /// `Gradients::reduce`, in whose exchange it takes no time, and can end the run after the same step.
    #[doc(hidden)]
    pub fn announce_last_step(&self) {
        self.promise().exchange.announce_last_step();
    }

    /// Returns true if a rank had announced its last step at the latest `Gradients::reduce`; the same on all ranks.
    #[doc(hidden)]
    pub fn is_last_step(&self) -> bool {
        self.promise().exchange.is_last_step()
    }
}
