//! Capture and replay of micro-batches.

use crate::backend::DeviceFailure;
use crate::layout::{AxisSet, Shape};
use crate::tensor::{CapturedPass, Metric, Pass, PassGraphs};
use crate::train::micro_batch::{
    CaptureError, GradAccumulator, MicroBatchFn, MicroBatchInput, MicroBatchKind,
    MicroBatchLauncher,
};

use super::schedule::CapturedSchedule;

/// The captured graphs of a step: one for each kind of micro-batch, or one for the schedule of a pipeline.
pub struct CapturedGraphs<S> {
    /// In the order of capture.
    graphs: Vec<(MicroBatchKind, CapturedPass<S>)>,
    pub(super) schedule: Option<CapturedSchedule<S>>,
    /// Set once all ranks have agreed that their memory suffices for the graphs and for the rest of a step.
    is_confirmed: bool,
    /// Elements that the losses of this step count so far.
    count: u64,
    /// Dropped last, after the graphs that use its memory.
    pub(super) passes: PassGraphs,
}

impl<S> CapturedGraphs<S> {
    /// Creates an empty set of graphs.
    pub(super) fn new(passes: PassGraphs) -> CapturedGraphs<S> {
        let (graphs, schedule) = (Vec::new(), None);
        CapturedGraphs { graphs, schedule, is_confirmed: false, count: 0, passes }
    }

    /// Begins a step, if the memory of the graphs is still theirs.
    pub(super) fn begin_step(&mut self) -> Result<(), CaptureError> {
        self.count = 0;
        self.check_memory()
    }

    /// Checks that the graphs can be replayed. Ranks agree on this once, after the first captured step; a rank that runs
    /// short of memory later cannot continue without the others.
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
        let why = "their memory was needed for something else";
        if was_confirmed && self.passes.are_of_several_ranks() {
            let advice = "leave more memory free, or run with --no-graphs";
            DeviceFailure(format!("CUDA graphs cannot be replayed, {why}; {advice}")).unwind();
        }
        Err(CaptureError::Permanent(why.to_owned()))
    }
}

impl<S: Shape> MicroBatchLauncher<S> for CapturedGraphs<S> {
    /// Replays the graph for this kind of micro-batch, or captures it in the first step.
    fn launch(
        &mut self,
        micro_batch: &MicroBatchInput<'_>,
        gradients: GradAccumulator,
        pass: &MicroBatchFn<'_, S>,
    ) -> Result<(Metric<S>, GradAccumulator), CaptureError> {
        let kind = micro_batch.kind;
        let name = step_name(micro_batch.step);
        let input = [pass_of(micro_batch)];
        let captured = self.graphs.iter().find(|(captured, _)| *captured == kind);
        let (metrics, count) = match captured {
            Some((_, graph)) if graph.takes(&input) => {
                let metrics = self.passes.replay(&name, graph, &input);
                (metrics.ok_or(CaptureError::Transient)?, graph.count())
            }
            Some(_) => return Err(CaptureError::Transient),
            None => {
                let work = |inputs: Vec<[_; 2]>| {
                    let [[tokens, targets]] = &inputs[..] else {
                        unreachable!("one micro-batch is captured")
                    };
                    let (metric, gradients) = pass(tokens, targets, gradients);
                    gradients.wait_for_reduction();
                    (vec![metric], ())
                };
                let captured = self.passes.record(&name, &input, work);
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
            GradAccumulator::Complete(self.passes.gradients::<S, _>(count, along))
        } else {
            GradAccumulator::Partial(self.passes.gradients::<S, _>(count, along))
        };
        let metric = metrics.into_iter().next().expect("the loss of the micro-batch");
        Ok((metric, gradients))
    }
}

/// Name of the graphs of a step in messages.
pub(super) fn step_name(step: u64) -> String {
    format!("step {step}")
}

/// The input of a micro-batch as a graph reads it.
pub(super) fn pass_of<'a>(micro_batch: &'a MicroBatchInput<'a>) -> Pass<'a> {
    let MicroBatchInput { sizes, data, .. } = micro_batch;
    Pass {
        sizes,
        first: data.rows.start,
        tokens: data.tokens,
        targets: data.targets,
        starts: data.starts,
    }
}
