//! The tracer of a process, which holds the lanes of all its ranks.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Lane;
use super::file::{self, TraceError};
use super::lane::Log;

/// Collects the lanes of all ranks of the process until they are written to a file.
#[derive(Debug)]
pub struct Tracer {
    origin: Instant,
    capacity: usize,
    lanes: Mutex<Vec<Arc<Log>>>,
}

impl Tracer {
    /// Maximum number of spans per lane. At about 300 bytes for a collective and 100 for another span, a full lane
    /// takes at most 40 MB.
    pub const CAPACITY: usize = 1 << 17;

    /// Creates a tracer without lanes; its timestamps start now.
    #[allow(clippy::new_ret_no_self)] // The ranks of the process share one tracer.
    pub fn new() -> Arc<Tracer> {
        Tracer::with_capacity(Tracer::CAPACITY)
    }

    /// Creates a tracer that keeps the first `capacity` spans of each lane instead of [`CAPACITY`](Self::CAPACITY). The
    /// file has the number of dropped spans.
    pub fn with_capacity(capacity: usize) -> Arc<Tracer> {
        Arc::new(Tracer { origin: Instant::now(), capacity, lanes: Mutex::default() })
    }

    /// Returns the lane `name` of a rank, which is created on first use, below the rank's other lanes.
    pub fn rank_lane(&self, rank: usize, name: &str) -> Lane {
        let mut lanes = self.lock_logs();
        if let Some(log) = lanes.iter().find(|log| log.rank == rank && log.name == name) {
            return Lane::with_log(log);
        }
        let log = Arc::new(Log::new(rank, name, self.origin, self.capacity));
        lanes.push(Arc::clone(&log));
        Lane::with_log(&log)
    }

    /// Writes all events recorded so far to a file, and replaces an existing one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), TraceError> {
        let path = path.as_ref();
        let write = || self.write_to(std::fs::File::create(path)?);
        write().map_err(|source| TraceError { path: path.into(), source })
    }

    /// Writes all events recorded so far in the
    /// [trace event format](https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): an object
    /// with
    /// - `traceEvents`: for each rank and each lane that is not empty, a metadata event (`"ph":"M"`) with its name; for
    ///   each span, a complete event (`"ph":"X"`) with `name`, `cat`, `ts` and `dur` in microseconds, `pid` (the rank),
    ///   `tid` (the lane, numbered from 1 in the whole file) and `args`;
    /// - `otherData.dropped_spans`: for each full lane, the number of dropped spans.
    ///
    /// # Errors
    /// If `target` cannot be written to.
    pub fn write_to(&self, target: impl std::io::Write) -> std::io::Result<()> {
        let mut lanes = self.lock_logs().clone();
        lanes.retain(|log| !log.is_empty());
        // Groups lanes by rank, each in the order of creation.
        lanes.sort_by_key(|log| log.rank);
        file::write(&lanes, target)
    }

    fn lock_logs(&self) -> MutexGuard<'_, Vec<Arc<Log>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
