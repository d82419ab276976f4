//! The decision to start a run again.

use std::time::Duration;

use meshwright::checkpoint::NewestCheckpoint;

/// Longest wait before a restart, in seconds.
const MAX_WAIT: u64 = 60;

/// The restarts of a run since its last progress.
pub struct Restarts {
    limit: u32,
    /// Restarts since a further step was saved.
    count: u32,
    /// The newest checkpoint before the first attempt, which the run has not saved.
    before: Option<NewestCheckpoint>,
    /// The last step that the run has saved.
    reached: Option<u64>,
}

impl Restarts {
    /// Allows `limit` restarts in a row without a further saved step.
    pub fn new(limit: u32) -> Restarts {
        Restarts { limit, count: 0, before: None, reached: None }
    }

    /// Begins the run, in a folder with the checkpoint `before`.
    pub fn begin(&mut self, before: Option<NewestCheckpoint>) {
        self.before = before;
    }

    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns true if the run has saved the checkpoint `newest`, from which it then continues. Another one may be that
    /// of an earlier run in the same folder.
    pub fn is_own(&self, newest: Option<&NewestCheckpoint>) -> bool {
        newest.is_some() && newest != self.before.as_ref()
    }

    /// Returns the number of the next restart since the last progress, and the wait before it; `None` if there is to be
    /// none.
    ///
    /// The first restart does not wait: a process that was lost alone is the most frequent failure. The others give
    /// whatever has failed time to recover.
    pub fn next_restart(&mut self, newest: Option<&NewestCheckpoint>) -> Option<(u32, Duration)> {
        if let Some(newest) = newest.filter(|newest| self.is_own(Some(newest)))
            && self.reached.is_none_or(|reached| newest.step > reached)
        {
            (self.reached, self.count) = (Some(newest.step), 0);
        }
        if self.count >= self.limit {
            return None;
        }
        self.count += 1;
        let seconds = match self.count {
            1 => 0,
            count => (1 << (count - 2).min(8)).min(MAX_WAIT),
        };
        Some((self.count, Duration::from_secs(seconds)))
    }
}
