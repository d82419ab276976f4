//! The evaluations of a run: their numbers, and what follows from them.

use crate::checkpoint::EvaluationRecord;
use crate::train::config::ValidationConfig;
use crate::train::plan::{Plan, Validation};
use crate::train::report::Evaluation;

/// The evaluations of a run with validation data, the same on all ranks.
pub struct Evaluations<'a> {
    pub validation: &'a Validation,
    settings: &'a ValidationConfig,
    /// All so far, also those before this run.
    pub record: EvaluationRecord,
    /// The evaluations of this run.
    pub done: Vec<Evaluation>,
    /// True if the last one was interrupted: the run ends, and a resumed one repeats it.
    pub is_interrupted: bool,
}

impl<'a> Evaluations<'a> {
    /// Creates the evaluations of a run that follows `plan`; `None` without validation data.
    pub fn new(plan: &'a Plan) -> Option<Evaluations<'a>> {
        let (validation, settings) =
            plan.validation.as_ref().zip(plan.config.validation.as_ref())?;
        let (record, done) = (validation.record.clone(), Vec::new());
        Some(Evaluations { validation, settings, record, done, is_interrupted: false })
    }

    /// Returns true if as many evaluations as `--early-stop` allows have not lowered the loss.
    pub fn stop_early(&self) -> bool {
        self.settings.early_stop.is_some_and(|most| self.record.without_improvement >= most)
    }

    /// Returns true if an evaluation is due after `steps` steps, if more steps follow.
    pub fn are_due_after(&self, steps: u64) -> bool {
        steps.is_multiple_of(self.settings.every)
    }

    /// Returns true if the evaluation after `steps` steps has the lowest loss.
    pub fn is_best_after(&self, steps: u64) -> bool {
        self.done.last().is_some_and(|last| last.step == steps && last.is_best)
    }
}
