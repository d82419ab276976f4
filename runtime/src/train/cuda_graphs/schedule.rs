//! Capture and replay of a pipeline schedule.

use std::rc::Rc;

use crate::layout::{AxisId, AxisSet};
use crate::pipeline::{MessageWait, PipelineStep};
use crate::train::micro_batch::{CaptureError, MicroBatchInput, StepGradients, StepInput};
use crate::train::task::{InputOf, Task};
use meshwright_core::__internal::{CapturedPass, InputPass, PassGraphs};

use super::graph_input::{capture_input, pass_of, step_name};

const PP: AxisSet = AxisSet::of(AxisId::Pp);

/// The captured passes and messages of all micro-batches of a step.
pub(super) struct CapturedSchedule<S> {
    passes: CapturedPass<S>,
    /// The waits for messages; their times come from the latest replay.
    wait: Rc<MessageWait>,
}

/// Replays the graph of the schedule that `captured` holds, or captures `run` in the first step.
pub(super) fn launch_schedule<T: Task>(
    graphs: &mut PassGraphs,
    captured: &mut Option<CapturedSchedule<T::Over>>,
    input: &StepInput<'_>,
    run: impl FnOnce(Vec<InputOf<T>>, Vec<T::Extra>) -> PipelineStep<T::Over>,
) -> Result<(StepGradients<T::Over>, Rc<MessageWait>), CaptureError> {
    let name = step_name(input.step);
    let micro_batches: Vec<MicroBatchInput<'_>> = input.micro_batches().collect();
    let passes: Vec<InputPass<'_>> = micro_batches.iter().map(pass_of).collect();
    let losses = match &*captured {
        Some(schedule) if schedule.passes.accepts_passes(&passes) => {
            let losses = graphs.replay(&name, &schedule.passes, &passes);
            losses.ok_or(CaptureError::Transient)?
        }
        Some(_) => return Err(CaptureError::Transient),
        None => {
            let work = |inputs: Vec<(InputOf<T>, T::Extra)>| {
                let (input, extra) = inputs.into_iter().unzip();
                let PipelineStep { losses, gradients, wait } = run(input, extra);
                gradients.finish_sums();
                (losses, wait)
            };
            let recorded = graphs.record_passes(&name, &passes, capture_input::<T>, work);
            let (losses, passes, wait) = recorded.map_err(CaptureError::Permanent)?;
            *captured = Some(CapturedSchedule { passes, wait: Rc::new(wait) });
            losses
        }
    };
    let schedule = captured.as_ref().expect("captured now or before");
    // Losses and counts belong to the last stage.
    let losses = losses.into_iter().map(|loss| loss.summed_over(PP)).collect();
    let gradients = graphs.gradients::<T::Over, _>(schedule.passes.count(), PP);
    Ok((StepGradients { losses, gradients }, Rc::clone(&schedule.wait)))
}
