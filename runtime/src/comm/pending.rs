//! The handle of an asynchronous collective.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::Buffer;

use super::CommError;
use super::local::{Activity, Monitor};
use super::stats::Counters;

/// An asynchronous collective under way; it holds the buffers that were handed over.
///
/// Dropping it does not stop the collective, which the other members still need; only its result is lost.
#[must_use = "the buffer comes back from `wait`"]
pub struct Pending<T = Buffer> {
    result: Arc<Monitor<Option<Result<T, CommError>>>>,
    counters: Arc<Counters>,
}

impl<T> Pending<T> {
    /// The handle, and the end through which the result arrives. `rank` is the issuing world rank.
    pub(super) fn new(
        rank: usize,
        counters: &Arc<Counters>,
        activity: &Arc<Activity>,
    ) -> (Promise<T>, Pending<T>) {
        let result = Arc::new(Monitor::new(None, activity));
        let promise = Promise { result: Arc::clone(&result), rank };
        (promise, Pending { result, counters: Arc::clone(counters) })
    }

    /// Waits until the collective is complete and gives the buffers back.
    ///
    /// # Errors
    /// As the synchronous call; the buffers are lost then.
    pub fn wait(self) -> Result<T, CommError> {
        let mut guard = self.result.lock();
        if let Some(result) = guard.take() {
            return result;
        }
        let start = Instant::now();
        // Without a limit: the call itself has one, and its promise is kept or dropped then.
        let result = self.result.wait(guard, Duration::MAX, |result, _| result.take());
        self.counters.blocked_since(start);
        result
    }
}

/// The other end of a [`Pending`].
pub(super) struct Promise<T> {
    result: Arc<Monitor<Option<Result<T, CommError>>>>,
    rank: usize,
}

impl<T> Promise<T> {
    pub fn keep(self, result: Result<T, CommError>) {
        let mut guard = self.result.lock();
        **guard = Some(result);
        self.result.announce(guard);
    }
}

/// A promise is dropped without a result when its rank has left the mesh. One that was kept is not changed by this:
/// its result is there, or was taken by a `wait` after which nobody looks.
impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut guard = self.result.lock();
        if guard.is_none() {
            **guard = Some(Err(CommError::Closed { rank: self.rank }));
            self.result.announce(guard);
        }
    }
}
