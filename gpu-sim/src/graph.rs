//! GraphPool of work, and doing it again.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright::backend::cuda::DriverError;

use crate::memory::{Memory, failure};
use crate::random::Random;
use crate::task::Task;

/// A recording that goes on.
pub(crate) struct Capture {
    /// The stream that it began with.
    pub(crate) origin: u64,
    recorded: Recorded,
    /// For every stream that takes part, the tasks that its next one comes after.
    heads: BTreeMap<u64, Vec<usize>>,
}

/// Recorded tasks, each after some earlier ones.
#[derive(Default)]
pub(crate) struct Recorded {
    tasks: Vec<(Task, Vec<usize>)>,
}

/// Recorded tasks that are being done again.
pub(crate) struct Replay {
    recorded: Arc<Recorded>,
    done: Vec<bool>,
}

impl Capture {
    pub(crate) fn new(origin: u64) -> Capture {
        let heads = BTreeMap::from([(origin, Vec::new())]);
        Capture { origin, recorded: Recorded::default(), heads }
    }

    /// Records a task of a stream that takes part.
    pub(crate) fn add(&mut self, stream: u64, task: Task) {
        let index = self.recorded.tasks.len();
        let after = self.heads.insert(stream, vec![index]).unwrap_or_default();
        self.recorded.tasks.push((task, after));
    }

    /// The tasks that the next one of a stream comes after.
    pub(crate) fn head(&self, stream: u64) -> Vec<usize> {
        self.heads.get(&stream).cloned().unwrap_or_default()
    }

    /// The next task of a stream, which takes part from now on, comes after these too.
    pub(crate) fn join(&mut self, stream: u64, after: &[usize]) {
        self.heads.entry(stream).or_default().extend(after);
    }

    /// The streams that take part.
    pub(crate) fn streams(&self) -> impl Iterator<Item = u64> {
        self.heads.keys().copied()
    }

    /// The recording; an error if there is work that the first stream has not waited for.
    pub(crate) fn end(self) -> Result<Recorded, DriverError> {
        let tasks = &self.recorded.tasks;
        let mut reached = vec![false; tasks.len()];
        let mut left = self.head(self.origin);
        while let Some(task) = left.pop() {
            if !std::mem::replace(&mut reached[task], true) {
                left.extend(&tasks[task].1);
            }
        }
        if reached.contains(&false) {
            let reason =
                "the recording has work on other streams that the first one has not waited for";
            return Err(failure("end_capture", reason.to_string()));
        }
        Ok(self.recorded)
    }
}

impl Replay {
    pub(crate) fn new(recorded: Arc<Recorded>) -> Replay {
        let done = vec![false; recorded.tasks.len()];
        Replay { recorded, done }
    }

    pub(crate) fn is_done(&self) -> bool {
        !self.done.contains(&false)
    }

    /// Does one of the tasks that can be done.
    pub(crate) fn run_one(
        &mut self,
        memory: &Memory,
        random: &mut Random,
    ) -> Result<(), DriverError> {
        let tasks = &self.recorded.tasks;
        let ready = |&task: &usize| {
            !self.done[task] && tasks[task].1.iter().all(|&before| self.done[before])
        };
        let ready: Vec<usize> = (0..tasks.len()).filter(ready).collect();
        // Tasks come after earlier ones, so that one is ready while any is left.
        let Some(&task) = ready.get(random.below(ready.len().max(1))) else { return Ok(()) };
        self.done[task] = true;
        tasks[task].0.run(memory, random.next())
    }
}
