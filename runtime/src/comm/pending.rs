//! The handle of an asynchronous call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::Buffer;

use super::account::Account;
use super::busy::Busy;
use super::local::{Activity, Monitor};
use super::{CommError, Site};

/// An asynchronous collective or message under way; it holds the buffers that were handed over.
///
/// Dropping it does not stop the call, which the other members still need; only its result is lost. Buffers in memory of a
/// device are not used for anything else before the device is done with them.
#[must_use = "the buffer comes back from `wait`"]
pub struct Pending<T = Buffer> {
    result: Arc<Outcome<T>>,
    account: Arc<Account>,
    site: Site,
    rank: usize,
    pub(super) overdue: Option<Overdue>,
}

/// Where the result arrives.
type Outcome<T> = Monitor<Option<Result<Busy<T>, CommError>>>;

/// What to do about a result that nobody else watches: after `limit` of waiting for it, `give_up` sees to it that there is
/// one, unless it is on its way.
pub(super) struct Overdue {
    pub limit: Duration,
    pub give_up: Box<dyn FnOnce() + Send + Sync>,
}

impl<T> Pending<T> {
    /// The handle, and the end through which the result arrives. `rank` is the issuing world rank.
    pub(super) fn new(
        rank: usize,
        account: &Arc<Account>,
        activity: &Arc<Activity>,
        site: &Site,
    ) -> (Promise<T>, Pending<T>) {
        let result = Arc::new(Monitor::new(None, activity));
        let promise = Promise { result: Arc::clone(&result), rank };
        let (account, site) = (Arc::clone(account), site.clone());
        (promise, Pending { result, account, site, rank, overdue: None })
    }

    /// Waits until the call is complete and gives the buffers back. Where they are in memory of a device, it is the compute
    /// queue of the device that waits; the host only waits until every member has issued the call.
    ///
    /// # Errors
    /// As the synchronous call; the buffers are lost then.
    pub fn wait(mut self) -> Result<T, CommError> {
        let mut guard = self.result.lock();
        if let Some(result) = guard.take() {
            drop(guard);
            return self.claim(result);
        }
        let _inside = self.account.enter("wait:", &self.site);
        let start = Instant::now();
        if let Some(Overdue { limit, give_up }) = self.overdue.take() {
            let is_there = |result: &mut Option<_>, timed_out| {
                (result.is_some() || timed_out).then_some(result.is_some())
            };
            if !self.result.wait(guard, limit, is_there) {
                give_up();
            }
            guard = self.result.lock();
        }
        // Without a limit: a collective has one of its own, and its promise is kept or dropped then.
        let result = self.result.wait(guard, Duration::MAX, |result, _| result.take());
        self.account.blocked_since(start);
        self.claim(result)
    }

    fn claim(&self, result: Result<Busy<T>, CommError>) -> Result<T, CommError> {
        let busy = result?;
        let value = match busy.is_under_way() {
            true => self.account.model_waits(&self.site, || busy.claim()),
            false => busy.claim(),
        };
        // A value is claimed once, so that it is there.
        value.ok_or(CommError::Closed { rank: self.rank })
    }
}

/// The other end of a [`Pending`].
pub(super) struct Promise<T> {
    result: Arc<Outcome<T>>,
    rank: usize,
}

impl<T> Promise<T> {
    pub fn keep(self, result: Result<Busy<T>, CommError>) {
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
