//! The input of a step as CUDA graphs read it.

use crate::train::micro_batch::MicroBatchInput;
use crate::train::task::{CapturedOf, Task};
use meshwright_core::__internal::{InputCapture, InputPass};

/// Name of the graphs of `step` (from 0) in messages, which count from 1.
pub(super) fn step_name(step: u64) -> String {
    format!("step {}", step + 1)
}

/// Creates the input of a micro-batch that is captured.
pub(super) fn capture_input<T: Task>(capture: &InputCapture<'_>) -> CapturedOf<T> {
    T::capture(capture).unwrap_or_else(|| unreachable!("the steps of other tasks run eagerly"))
}

/// The input of a micro-batch as a graph reads it.
pub(super) fn pass_of<'a>(micro_batch: &'a MicroBatchInput<'a>) -> InputPass<'a> {
    let MicroBatchInput { sizes, data, .. } = micro_batch;
    InputPass {
        sizes,
        micro_batch: data.place,
        tokens: data.tokens,
        targets: data.targets,
        starts: data.starts,
    }
}
