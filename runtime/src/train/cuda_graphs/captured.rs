//! The graphs of one rank's step, and the graphs of its micro-batches.

use std::rc::Rc;

use crate::backend::DeviceFailure;
use crate::layout::AxisSet;
use crate::pipeline::{MessageWait, PipelineStep};
use crate::train::micro_batch::{
    CaptureError, GradAccumulator, LossOf, MicroBatchFn, MicroBatchInput, MicroBatchKind,
    MicroBatchLauncher, StepGradients, StepInput,
};
use crate::train::task::{InputOf, Task};
use meshwright_core::__internal::{CapturedPass, PassGraphs};

use super::graph_input::{capture_input, pass_of, step_name};
use super::schedule::{self, CapturedSchedule};

/// The captured graphs of a step: one for each kind of micro-batch, or one for the schedule of a pipeline.
pub struct CapturedGraphs<T: Task> {
    /// Graphs in the order of capture.
    graphs: Vec<(MicroBatchKind, CapturedPass<T::Over>)>,
    schedule: Option<CapturedSchedule<T::Over>>,
    /// Set once all ranks have agreed that their memory suffices for the graphs and for the rest of a step.
    is_confirmed: bool,
    /// Elements that the losses of this step count so far.
    count: f64,
    /// Dropped last, after the graphs that use its memory.
    passes: PassGraphs,
}

impl<T: Task> CapturedGraphs<T> {
    /// Creates an empty set of graphs.
    pub(super) fn new(passes: PassGraphs) -> CapturedGraphs<T> {
        let (graphs, schedule) = (Vec::new(), None);
        CapturedGraphs { graphs, schedule, is_confirmed: false, count: 0.0, passes }
    }

    /// Begins a step, if the memory of the graphs is still theirs.
    pub(super) fn begin_step(&mut self) -> Result<(), CaptureError> {
        self.count = 0.0;
        self.check_memory()
    }

    /// Checks that the graphs can be replayed. Ranks agree on this once, after the first captured step; a rank that
    /// runs short of memory later cannot continue without the others.
    fn check_memory(&mut self) -> Result<(), CaptureError> {
        let was_confirmed = self.is_confirmed;
        self.is_confirmed = !self.graphs.is_empty() || self.schedule.is_some();
        let suffices = if self.is_confirmed && !was_confirmed {
            self.passes.are_whole_everywhere()
        } else {
            self.passes.are_whole()
        };
        if suffices {
            return Ok(());
        }
        let why = "their memory was reclaimed for other buffers";
        if was_confirmed && self.passes.are_of_several_ranks() {
            let advice = "leave more memory free, or run with --no-graphs";
            DeviceFailure(format!("CUDA graphs cannot be replayed, {why}; {advice}")).unwind();
        }
        Err(CaptureError::Permanent(why.to_owned()))
    }
}

impl<T: Task> CapturedGraphs<T> {
    /// Replays the graph of a schedule, or captures `run` in the first step: from the inputs of all
    /// micro-batches to their losses and gradients. Returns the waits for messages, too; the device may not have
    /// completed them.
    ///
    /// # Errors
    /// A CUDA graph that cannot be captured or replayed. The step must then be repeated eagerly.
    pub fn launch_schedule(
        &mut self,
        input: &StepInput<'_>,
        run: impl FnOnce(Vec<InputOf<T>>, Vec<T::Extra>) -> PipelineStep<T::Over>,
    ) -> Result<(StepGradients<T::Over>, Rc<MessageWait>), CaptureError> {
        schedule::launch_schedule::<T>(&mut self.passes, &mut self.schedule, input, run)
    }
}

impl<T: Task> MicroBatchLauncher<T> for CapturedGraphs<T> {
    /// Replays the graph for this kind of micro-batch, or captures it in the first step.
    fn launch(
        &mut self,
        micro_batch: &MicroBatchInput<'_>,
        gradients: GradAccumulator,
        pass: &MicroBatchFn<'_, T>,
    ) -> Result<(LossOf<T>, GradAccumulator), CaptureError> {
        let kind = micro_batch.kind;
        let name = step_name(micro_batch.step);
        let input = [pass_of(micro_batch)];
        let captured = self.graphs.iter().find(|(captured, _)| *captured == kind);
        let (metrics, count) = match captured {
            Some((_, graph)) if graph.accepts_passes(&input) => {
                let metrics = self.passes.replay(&name, graph, &input);
                (metrics.ok_or(CaptureError::Transient)?, graph.count())
            }
            Some(_) => return Err(CaptureError::Transient),
            None => {
                let work = |inputs: Vec<(InputOf<T>, T::Extra)>| {
                    let [(input, extra)] = &inputs[..] else {
                        unreachable!("one micro-batch is captured")
                    };
                    let (metric, gradients) = pass(input, extra, gradients);
                    gradients.wait_for_reduction();
                    (vec![metric], ())
                };
                let captured = self.passes.record_passes(&name, &input, capture_input::<T>, work);
                let (metrics, graph, ()) = captured.map_err(CaptureError::Permanent)?;
                let count = graph.count();
                self.graphs.push((kind, graph));
                (metrics, count)
            }
        };
        self.count += count;
        // A replay leaves gradients in the buffers of the FSDP units without the host's bookkeeping.
        let (count, along) = (self.count, AxisSet::NONE);
        let gradients = if kind.is_last {
            GradAccumulator::Complete(self.passes.gradients::<T::Over, _>(count, along))
        } else {
            GradAccumulator::Partial(self.passes.gradients::<T::Over, _>(count, along))
        };
        let metric = metrics.into_iter().next().expect("the loss of the micro-batch");
        Ok((metric, gradients))
    }
}
