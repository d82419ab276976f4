//! The handle of an asynchronous collective.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use crate::backend::Buffer;

use super::CommError;
use super::stats::Counters;

/// An asynchronous collective under way; it holds the buffers that were handed over.
///
/// Dropping it does not stop the collective, which the other members still need; only its result is lost.
#[must_use = "the buffer comes back from `wait`"]
#[derive(Debug)]
pub struct Pending<T = Buffer> {
    result: mpsc::Receiver<Result<T, CommError>>,
    rank: usize,
    counters: Arc<Counters>,
}

impl<T> Pending<T> {
    /// The handle, and the end through which the result arrives. `rank` is the issuing world rank.
    pub(super) fn new(
        rank: usize,
        counters: Arc<Counters>,
    ) -> (mpsc::Sender<Result<T, CommError>>, Pending<T>) {
        let (sender, result) = mpsc::channel();
        (sender, Pending { result, rank, counters })
    }

    /// Waits until the collective is complete and gives the buffers back.
    ///
    /// # Errors
    /// As the synchronous call; the buffers are lost then.
    pub fn wait(self) -> Result<T, CommError> {
        if let Ok(result) = self.result.try_recv() {
            return result;
        }
        let start = Instant::now();
        // The sending end vanishes unused only when the rank left the mesh with the operation still queued.
        let result = self.result.recv().unwrap_or(Err(CommError::Closed { rank: self.rank }));
        self.counters.blocked_since(start);
        result
    }
}
