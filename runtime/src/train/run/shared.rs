//! State that the ranks of this process share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::train::Result;
use crate::train::plan::Plan;
use crate::train::report::MetricsFiles;

/// State that the ranks of this process share.
#[derive(Default)]
pub struct Shared {
    /// Written by rank 0.
    pub metrics: Arc<Mutex<MetricsFiles>>,
    /// Ranks that have begun to sample a continuation, and those that have sampled it.
    sampling: [AtomicUsize; 2],
}

impl Shared {
    /// Shares the open files of metrics, in the process of rank 0.
    pub fn new(metrics: MetricsFiles) -> Shared {
        Shared { metrics: Arc::new(Mutex::new(metrics)), sampling: Default::default() }
    }

    /// Samples a continuation by `sample`, on a rank that has saved and exported everything.
    pub fn sample<T>(&self, sample: impl FnOnce() -> Result<T>) -> Result<T> {
        let [begun, sampled] = &self.sampling;
        begun.fetch_add(1, Ordering::SeqCst);
        let continuation = sample()?;
        sampled.fetch_add(1, Ordering::SeqCst);
        Ok(continuation)
    }

    /// Returns true if the run has failed while it sampled a continuation: all ranks of this process had saved and
    /// exported everything.
    pub fn has_failed_in_sampling(&self, plan: &Plan) -> bool {
        let ranks = plan.machine.own_rank().map_or(plan.config.mesh.world_size(), |_| 1);
        let [begun, sampled] = self.sampling.each_ref().map(|count| count.load(Ordering::SeqCst));
        begun == ranks && sampled < ranks
    }
}
