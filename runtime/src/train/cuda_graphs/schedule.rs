//! Capture and replay of a pipeline schedule.

use std::rc::Rc;

use crate::layout::{AxisId, AxisSet, Shape};
use crate::pipeline::{MessageWait, PipelineStep};
use crate::tensor::{CapturedPass, Pass, Tokens};
use crate::train::micro_batch::{CaptureError, MicroBatchInput, StepGradients, StepInput};

use super::CapturedGraphs;
use super::captured::{pass_of, step_name};

const PP: AxisSet = AxisSet::of(AxisId::Pp);

/// The captured passes and messages of all micro-batches of a step.
pub(super) struct CapturedSchedule<S> {
    passes: CapturedPass<S>,
    /// The waits for messages, whose times are those of the latest replay.
    wait: Rc<MessageWait>,
}

impl<S: Shape> CapturedGraphs<S> {
    /// Replays the graph of a schedule, or captures `run` in the first step: from the tokens and targets of all
    /// micro-batches to their losses and gradients. Returns the waits for messages, too; the device may not have completed
    /// them.
    ///
    /// # Errors
    /// A CUDA graph that cannot be captured or replayed. The step must then be repeated eagerly.
    pub fn launch_schedule(
        &mut self,
        input: &StepInput<'_>,
        run: impl FnOnce(Vec<Tokens<S>>, Vec<Tokens<S>>) -> PipelineStep<S>,
    ) -> Result<(StepGradients<S>, Rc<MessageWait>), CaptureError> {
        let name = step_name(input.step);
        let micro_batches: Vec<MicroBatchInput<'_>> = input.micro_batches().collect();
        let passes: Vec<Pass<'_>> = micro_batches.iter().map(pass_of).collect();
        let losses = match &self.schedule {
            Some(schedule) if schedule.passes.takes(&passes) => {
                let losses = self.passes.replay(&name, &schedule.passes, &passes);
                losses.ok_or(CaptureError::Transient)?
            }
            Some(_) => return Err(CaptureError::Transient),
            None => {
                let work = |inputs: Vec<[_; 2]>| {
                    let inputs = inputs.into_iter().map(|[tokens, targets]| (tokens, targets));
                    let (tokens, targets) = inputs.unzip();
                    let PipelineStep { losses, gradients, wait } = run(tokens, targets);
                    gradients.finish_sums();
                    (losses, wait)
                };
                let captured = self.passes.record(&name, &passes, work);
                let (losses, passes, wait) = captured.map_err(CaptureError::Permanent)?;
                self.schedule = Some(CapturedSchedule { passes, wait: Rc::new(wait) });
                losses
            }
        };
        let schedule = self.schedule.as_ref().expect("captured now or before");
        // Losses and counts are those of the last stage.
        let losses = losses.into_iter().map(|loss| loss.summed_over(PP)).collect();
        let gradients = self.passes.gradients::<S, _>(schedule.passes.count(), PP);
        Ok((StepGradients { losses, gradients }, Rc::clone(&schedule.wait)))
    }
}
