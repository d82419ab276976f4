//! Stages that sleep instead of computing.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use meshwright::backend::{Buffer, CachingAllocator, Category, DType};
use meshwright::comm::CommError;
use meshwright::pipeline::{ExecutorError, StageWork};

/// An error of a rank.
#[derive(Debug)]
pub enum BenchError {
    Comm(CommError),
    Executor(ExecutorError),
}

impl From<CommError> for BenchError {
    fn from(error: CommError) -> BenchError {
        BenchError::Comm(error)
    }
}

impl From<ExecutorError> for BenchError {
    fn from(error: ExecutorError) -> BenchError {
        BenchError::Executor(error)
    }
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BenchError::Comm(error) => error.fmt(f),
            BenchError::Executor(error) => error.fmt(f),
        }
    }
}

/// The stages of a rank. Each takes one unit for a forward pass and for each part of a backward pass.
pub struct SleepingStages {
    stages: usize,
    unit: Duration,
    allocator: Arc<CachingAllocator>,
}

impl SleepingStages {
    pub fn new(stages: usize, unit: Duration, allocator: &Arc<CachingAllocator>) -> SleepingStages {
        SleepingStages { stages, unit, allocator: Arc::clone(allocator) }
    }

    /// Sleeps, and returns an output unless the stage is at the end of the pipeline.
    fn sleep_units(&self, units: u32, is_end: bool) -> Result<Vec<Arc<Buffer>>, BenchError> {
        sleep(self.unit * units);
        let output = || Arc::new(self.allocator.zeros(DType::F32, 1, Category::Activations));
        Ok((!is_end).then(output).into_iter().collect())
    }
}

impl StageWork for SleepingStages {
    type Error = BenchError;

    fn run_forward(
        &mut self,
        stage: usize,
        _: usize,
        _: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, BenchError> {
        self.sleep_units(1, stage + 1 == self.stages)
    }

    fn run_backward(
        &mut self,
        stage: usize,
        _: usize,
        _: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, BenchError> {
        self.sleep_units(2, stage == 0)
    }

    fn run_backward_input(
        &mut self,
        stage: usize,
        _: usize,
        _: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, BenchError> {
        self.sleep_units(1, stage == 0)
    }

    fn run_backward_weight(&mut self, _: usize, _: usize) -> Result<(), BenchError> {
        self.sleep_units(1, true).map(drop)
    }

    fn unshard(&mut self, _: usize) -> Result<(), BenchError> {
        Ok(())
    }

    fn reshard(&mut self, _: usize) -> Result<(), BenchError> {
        Ok(())
    }

    fn reduce_gradients(&mut self, _: usize) -> Result<(), BenchError> {
        Ok(())
    }
}
