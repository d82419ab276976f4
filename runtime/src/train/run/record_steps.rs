//! The steps of a rank, recorded.

use std::sync::Arc;

use crate::tensor::Rank;
use crate::train::record::StepRecorder;
use crate::train::report::{StepObserver, StepReport};
use crate::train::{Result, Task};
use meshwright_sim::StepLog;

use super::RankLoop;

impl<T: Task> RankLoop<'_, T> {
    /// Trains like [`run_steps`](Self::run_steps), without reports, and returns the log of the last step of a rank that
    /// `recorder` observes.
    pub fn record_steps(mut self, recorder: &Arc<StepRecorder>) -> Result<StepLog> {
        let mut recorded =
            RecordedSteps { recorder: Arc::clone(recorder), log: StepLog::default() };
        self.train(&mut [&mut recorded])?;
        Ok(recorded.log)
    }
}

/// Records each step.
struct RecordedSteps {
    recorder: Arc<StepRecorder>,
    /// The log of the last step.
    log: StepLog,
}

impl StepObserver for RecordedSteps {
    fn begin(&mut self, _: &Rank, _: u64) {
        self.recorder.begin_step();
    }

    fn end(&mut self, _: &StepReport<'_>) -> Result<()> {
        self.log = self.recorder.end_step();
        Ok(())
    }
}
