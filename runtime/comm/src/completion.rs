//! The handle through which an engine reports the completion of a call.

use std::sync::Arc;
use std::time::Duration;

use meshwright_backend::{Buffer, Device, DeviceEvent};

use super::CommError;
use super::in_use::InUse;
use super::sync::{DeadlockDetector, Monitor};

/// Outcome of a call that was issued to an engine: the destination buffer of an asynchronous call, or an error.
pub struct Completion(CompletionState);

/// The destination buffer of a call, or an error.
pub(super) type Outcome = Result<InUse<Option<Buffer>>, CommError>;

enum CompletionState {
    /// Known, although a device may still work on the operands.
    Known(Outcome),
    /// Reported later by the [`Promise`].
    Promised(Promised),
    /// Another state, with a function to call when the rank waits for it.
    Observed(Box<Observed>),
}

struct Observed {
    state: CompletionState,
    at_wait: AtWait,
}

/// A function to call at a wait. Its argument returns true once the outcome is known.
type AtWait = Box<dyn FnOnce(&dyn Fn() -> bool) + Send + Sync>;

/// The receiving end of a [`Promise`].
pub(super) struct Promised {
    outcome: Arc<Monitor<Option<Outcome>>>,
    /// Deadline of an outcome without a watchdog: after `limit` of waiting for it, `expire` makes it an error, unless
    /// it is already being delivered.
    pub deadline: Option<Deadline>,
}

pub(super) struct Deadline {
    pub limit: Duration,
    pub expire: Box<dyn FnOnce() + Send + Sync>,
}

impl Completion {
    /// Creates the completion of a call that is complete or has failed. `dst` is the destination buffer of an
    /// asynchronous call, if any.
    pub fn completed(outcome: Result<Option<Buffer>, CommError>) -> Completion {
        CompletionState::Known(outcome.map(InUse::idle)).into()
    }

    /// A call that has been waited for.
    pub(super) fn awaited(outcome: Outcome) -> Completion {
        CompletionState::Known(outcome).into()
    }

    /// Calls `at_wait` when the rank waits for the outcome, with a function that returns true once it is known.
    pub(super) fn and_at_wait(
        self,
        at_wait: impl FnOnce(&dyn Fn() -> bool) + Send + Sync + 'static,
    ) -> Completion {
        let observed = Observed { state: self.0, at_wait: Box::new(at_wait) };
        CompletionState::Observed(Box::new(observed)).into()
    }

    /// A call that `device` has completed at `event`. Both operands are in use until then.
    pub fn at_event(
        dst: Option<Buffer>,
        src: Option<Arc<Buffer>>,
        device: &Arc<dyn Device>,
        event: DeviceEvent,
    ) -> Completion {
        let dst = InUse::until(dst, Some(device), Some(event));
        CompletionState::Known(Ok(dst.holding(src))).into()
    }

    /// Keeps the scratch memory of the call as long as the operands are in use.
    #[cfg(feature = "cuda")]
    pub(super) fn with_scratch(self, scratch: Option<Arc<Buffer>>) -> Completion {
        match self.0 {
            CompletionState::Known(Ok(dst)) => {
                CompletionState::Known(Ok(dst.holding(scratch))).into()
            }
            state => state.into(),
        }
    }

    /// Creates the completion of a call of world rank `rank`, whose outcome another thread reports through the promise.
    pub fn promised(rank: usize) -> (Promise, Completion) {
        // Never reports, as one running task is left.
        let (promise, promised) = Promise::new(rank, &Arc::new(DeadlockDetector::new(2)));
        (promise, promised.into())
    }
}

impl Completion {
    /// Returns true if the outcome is known.
    pub(super) fn has_outcome(&self) -> bool {
        self.0.has_outcome()
    }

    /// Waits for the outcome.
    pub(super) fn wait(self) -> Outcome {
        self.0.wait()
    }
}

impl CompletionState {
    fn has_outcome(&self) -> bool {
        match self {
            CompletionState::Known(_) => true,
            CompletionState::Promised(promised) => promised.outcome.lock().is_some(),
            CompletionState::Observed(observed) => observed.state.has_outcome(),
        }
    }

    fn wait(self) -> Outcome {
        match self {
            CompletionState::Known(outcome) => outcome,
            CompletionState::Promised(promised) => promised.wait(),
            CompletionState::Observed(observed) => {
                let Observed { state, at_wait } = *observed;
                at_wait(&|| state.has_outcome());
                state.wait()
            }
        }
    }
}

impl From<CompletionState> for Completion {
    fn from(state: CompletionState) -> Completion {
        Completion(state)
    }
}

impl From<Promised> for Completion {
    fn from(promised: Promised) -> Completion {
        CompletionState::Promised(promised).into()
    }
}

impl Promised {
    fn wait(self) -> Outcome {
        if let Some(Deadline { limit, expire }) = self.deadline {
            let is_there = |outcome: &mut Option<Outcome>, timed_out| {
                (outcome.is_some() || timed_out).then_some(outcome.is_some())
            };
            if !self.outcome.wait(self.outcome.lock(), limit, is_there) {
                expire();
            }
        }
        // Without a limit: a collective has its own, and its promise is fulfilled or dropped then.
        self.outcome.wait(self.outcome.lock(), Duration::MAX, |outcome, _| outcome.take())
    }
}

/// The reporting end of a call that completes later. Dropping it reports that the rank has left the mesh.
pub struct Promise {
    outcome: Arc<Monitor<Option<Outcome>>>,
    rank: usize,
}

impl Promise {
    /// Creates both ends for a call of world rank `rank`.
    pub(super) fn new(rank: usize, deadlock: &Arc<DeadlockDetector>) -> (Promise, Promised) {
        let outcome = Arc::new(Monitor::new(None, deadlock));
        let promise = Promise { outcome: Arc::clone(&outcome), rank };
        (promise, Promised { outcome, deadline: None })
    }

    /// Reports a call that is complete, or has failed. `dst` is the buffer that was handed over, if any.
    pub fn fulfill(self, outcome: Result<Option<Buffer>, CommError>) {
        self.report(outcome.map(InUse::idle));
    }

    /// Reports the outcome of a call whose operands a device may still use.
    pub(super) fn report(self, outcome: Outcome) {
        let mut guard = self.outcome.lock();
        **guard = Some(outcome);
        self.outcome.notify_all(guard);
    }
}

/// A promise that was fulfilled is not changed: its outcome is there, or was taken by the only `wait`.
impl Drop for Promise {
    fn drop(&mut self) {
        let mut guard = self.outcome.lock();
        if guard.is_none() {
            **guard = Some(Err(CommError::Closed { rank: self.rank }));
            self.outcome.notify_all(guard);
        }
    }
}
