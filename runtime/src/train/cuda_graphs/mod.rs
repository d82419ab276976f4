//! CUDA graphs around the training step.
//!
//! A step without a pipeline runs its micro-batches through a
//! [`MicroBatchLauncher`](super::micro_batch::MicroBatchLauncher): the eager one during warm-up, then
//! [`CapturedGraphs`], which captures the forward and backward pass of each kind of micro-batch as a CUDA graph and
//! replays it in later steps. All that a rank does in a pipeline schedule, with its messages, is one graph. If a graph
//! cannot be captured or replayed, the step is repeated eagerly.

mod captured;
mod graph_input;
mod schedule;

use crate::tensor::Rank;
use meshwright_core::__internal::{PassGraphs, PassVariation};

use super::console::print_line;
use super::micro_batch::CaptureError;
use super::task::Task;

pub use captured::CapturedGraphs;

/// Eager steps before capture: the first one compiles kernels and learns the order of parameters, the second one is
/// like all later ones and shows if they can be captured.
const WARM_UP_STEPS: usize = 2;

/// Captures after parameters have moved, which they do not in ordinary runs.
const MAX_CAPTURES: usize = 3;

/// The CUDA graphs of one rank's training step of a task.
pub struct CudaGraphs<T: Task> {
    state: GraphState<T>,
    /// Captures that are left.
    captures: usize,
    /// Rank 0 reports on stderr why graphs are off.
    reports: bool,
}

enum GraphState<T: Task> {
    Off,
    /// Eager steps left before capture.
    WarmUp(usize),
    Captured(Box<CapturedGraphs<T>>),
}

impl<T: Task> CudaGraphs<T> {
    /// Creates the state of a rank on which steps are captured if `wanted`, unless there is an `obstacle`.
    pub fn new(rank: &Rank, wanted: bool, obstacle: Option<&str>) -> CudaGraphs<T> {
        let state = if wanted { GraphState::WarmUp(WARM_UP_STEPS) } else { GraphState::Off };
        let mut graphs = CudaGraphs { state, captures: MAX_CAPTURES, reports: rank.index() == 0 };
        if let (true, Some(why)) = (wanted, obstacle) {
            graphs.turn_off(why);
        }
        graphs
    }

    /// Frees all graphs; later steps run eagerly.
    pub fn close(&mut self) {
        self.state = GraphState::Off;
    }

    /// Runs a step: by `captured`, which captures or replays CUDA graphs, once the warm-up is over; else, and if that
    /// fails, by `eager`.
    pub fn run_step<R>(
        &mut self,
        rank: &Rank,
        captured: impl FnOnce(&mut CapturedGraphs<T>) -> Result<R, CaptureError>,
        eager: impl FnOnce() -> R,
    ) -> R {
        if matches!(self.state, GraphState::WarmUp(0)) {
            self.state = match PassGraphs::new(rank) {
                Some(passes) => GraphState::Captured(Box::new(CapturedGraphs::new(passes))),
                None => GraphState::Off,
            };
        }
        if let GraphState::Captured(graphs) = &mut self.state {
            match graphs.begin_step().and_then(|()| captured(graphs)) {
                Ok(result) => return result,
                Err(error) => self.discard_step(rank, error),
            }
        }
        let before = PassVariation::current(rank);
        let result = eager();
        if let GraphState::WarmUp(steps_left) = &mut self.state {
            *steps_left -= 1;
            if *steps_left == 0
                && let Some(why) = PassVariation::current(rank).obstacle_since(before, rank)
            {
                self.turn_off(&format!("in this model, {why}"));
            }
        }
        result
    }

    /// Discards the gradients of a step whose graphs failed.
    fn discard_step(&mut self, rank: &Rank, error: CaptureError) {
        rank.discard_gradients();
        match error {
            CaptureError::Permanent(why) => self.turn_off(&why),
            CaptureError::Transient => {
                self.captures -= 1;
                self.state = match self.captures {
                    0 => GraphState::Off,
                    _ => GraphState::WarmUp(WARM_UP_STEPS),
                };
            }
        }
    }

    fn turn_off(&mut self, why: &str) {
        self.close();
        if self.reports {
            print_line(&format!("CUDA graphs are off, and steps run eagerly: {why}"));
        }
    }
}
