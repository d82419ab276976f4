//! Stream capture and replay of captured work.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright_cuda::DriverError;

use crate::memory::{Memory, failure};
use crate::random::Random;
use crate::task::Task;

/// An active capture.
pub(crate) struct Capture {
    /// The stream on which the capture began.
    pub(crate) origin: u64,
    captured: CapturedTasks,
    /// The tasks on which the next task of each participating stream depends.
    heads: BTreeMap<u64, Vec<usize>>,
}

/// Captured tasks with their dependencies, in topological order.
#[derive(Default)]
pub(crate) struct CapturedTasks {
    tasks: Vec<(Task, Vec<usize>)>,
}

/// A replay of captured tasks.
pub(crate) struct Replay {
    captured: Arc<CapturedTasks>,
    done: Vec<bool>,
}

impl Capture {
    pub(crate) fn new(origin: u64) -> Capture {
        let heads = BTreeMap::from([(origin, Vec::new())]);
        Capture { origin, captured: CapturedTasks::default(), heads }
    }

    /// Captures a task of a participating stream.
    pub(crate) fn add(&mut self, stream: u64, task: Task) {
        let index = self.captured.tasks.len();
        let after = self.heads.insert(stream, vec![index]).unwrap_or_default();
        self.captured.tasks.push((task, after));
    }

    /// Returns the dependencies of a stream's next task.
    pub(crate) fn head(&self, stream: u64) -> Vec<usize> {
        self.heads.get(&stream).cloned().unwrap_or_default()
    }

    /// Adds dependencies to the next task of a stream, which participates from now on.
    pub(crate) fn join(&mut self, stream: u64, after: &[usize]) {
        self.heads.entry(stream).or_default().extend(after);
    }

    /// Returns the participating streams.
    pub(crate) fn streams(&self) -> impl Iterator<Item = u64> {
        self.heads.keys().copied()
    }

    /// Ends the capture; an error if other streams have work that the first stream does not wait for.
    pub(crate) fn end(self) -> Result<CapturedTasks, DriverError> {
        let tasks = &self.captured.tasks;
        let mut reached = vec![false; tasks.len()];
        let mut left = self.head(self.origin);
        while let Some(task) = left.pop() {
            if !std::mem::replace(&mut reached[task], true) {
                left.extend(&tasks[task].1);
            }
        }
        if reached.contains(&false) {
            let reason =
                "the capture has work on other streams that the first one has not waited for";
            return Err(failure("end_capture", reason.to_string()));
        }
        Ok(self.captured)
    }
}

impl Replay {
    pub(crate) fn new(captured: Arc<CapturedTasks>) -> Replay {
        let done = vec![false; captured.tasks.len()];
        Replay { captured, done }
    }

    pub(crate) fn is_done(&self) -> bool {
        !self.done.contains(&false)
    }

    /// Returns true if a task can be executed.
    pub(crate) fn has_ready(&self) -> bool {
        self.due().any(|task| self.captured.tasks[task].0.is_ready())
    }

    /// Returns true if a task waits for an event outside of the device, or has just ended such a wait.
    pub(crate) fn waits_outside(&self) -> bool {
        self.due().any(|task| matches!(self.captured.tasks[task].0, Task::When(..)))
    }

    /// Returns the tasks that are to be executed, after all that they depend on.
    fn due(&self) -> impl Iterator<Item = usize> {
        let tasks = &self.captured.tasks;
        let is_due = |&task: &usize| {
            !self.done[task] && tasks[task].1.iter().all(|&before| self.done[before])
        };
        (0..tasks.len()).filter(is_due)
    }

    /// Executes a random ready task, if there is one.
    pub(crate) fn run_one(
        &mut self,
        memory: &Memory,
        random: &mut Random,
    ) -> Result<(), DriverError> {
        let tasks = &self.captured.tasks;
        let ready: Vec<usize> = self.due().filter(|&task| tasks[task].0.is_ready()).collect();
        let Some(&task) = ready.get(random.below(ready.len().max(1))) else { return Ok(()) };
        self.done[task] = true;
        tasks[task].0.run(memory, random.next())
    }
}
