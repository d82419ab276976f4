//! Steps without a target that counts: the mean over no targets is undefined, and is reported as 0.

use crate::train::console::{counted, print_line};
use crate::train::plan::Plan;
use crate::train::report::{StepObserver, StepReport};
use crate::train::{Error, Result};

/// Advice for data with too many ignored targets.
const ADVICE: &str =
    "use a larger --batch, data with longer documents, or leave --mask-borders out";

/// Counts the steps of a run without targets.
pub struct TargetCount<'a> {
    plan: &'a Plan,
    steps: usize,
    without_targets: usize,
}

impl StepObserver for TargetCount<'_> {
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let mut warning = self.count_step(report.step, report.tokens);
        if report.step == self.plan.config.steps {
            warning = self.check_run()?.or(warning);
        }
        if let (Some(warning), 0) = (warning, report.rank.index()) {
            print_line(&warning);
        }
        Ok(())
    }
}

impl<'a> TargetCount<'a> {
    /// Creates the count of a run that follows `plan`.
    pub fn new(plan: &'a Plan) -> TargetCount<'a> {
        TargetCount { plan, steps: 0, without_targets: 0 }
    }

    /// Counts `step` with `targets` targets on all ranks together, and returns a warning about the first step
    /// that has none.
    fn count_step(&mut self, step: u64, targets: u64) -> Option<String> {
        self.steps += 1;
        if targets > 0 {
            return None;
        }
        self.without_targets += 1;
        (self.without_targets == 1).then(|| {
            format!(
                "warning: step {}: all targets are ignored, so it has no loss, which is reported as 0, and its \
                 gradients are zeros; later steps like it are not reported. If there are many, {}",
                step,
                self.advice()
            )
        })
    }

    /// Returns the advice for the rows of the run.
    fn advice(&self) -> &'static str {
        match self.plan.dataset.streams() {
            Some(_) => "use a larger --batch, or examples with targets",
            None => ADVICE,
        }
    }

    /// Checks that a target was trained on, after the last step. Returns a warning about a resumed run without targets,
    /// whose earlier steps may have had some.
    ///
    /// # Errors
    /// A run that has learned nothing, with its data.
    fn check_run(&self) -> Result<Option<String>> {
        if self.without_targets < self.steps {
            return Ok(None);
        }
        let plan = self.plan;
        let (steps, data) = (counted(self.steps, "step"), plan.dataset.name());
        match plan.first_step() {
            0 => Err(Error::Input(format!(
                "--data: all targets of {steps} of {data} are ignored, so nothing was learned; {}",
                self.advice()
            ))),
            first => Ok(Some(format!(
                "warning: --data: all targets of the {steps} of {data} after step {first} are ignored, so nothing was \
                 learned after --resume; {}",
                self.advice()
            ))),
        }
    }
}
