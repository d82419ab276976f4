//! The handle of an asynchronous call.

use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use meshwright_backend::Buffer;

use super::completion::Outcome;
use super::{CommError, Completion, GroupMember, Site};

/// An asynchronous collective or message in flight; it owns the buffers that were handed over.
///
/// Dropping it does not cancel the call, which the other members still need; only its result is lost. Buffers in device
/// memory are not reused before the device is done with them.
#[must_use = "`wait` returns the buffer"]
pub struct PendingCall<T = Buffer> {
    completion: Completion,
    member: Arc<GroupMember>,
    site: Site,
    /// Index in the recorder of the rank, and 1; `None` if the call was refused.
    number: Option<NonZeroU64>,
    result: PhantomData<fn() -> T>,
}

/// The result of an asynchronous call: a [`Buffer`], an `Option<Buffer>` of a gather, or `()` of a send.
pub trait PendingResult: Sized + sealed::Sealed {
    /// Makes the result of the destination buffer.
    #[doc(hidden)]
    fn from_buffer(dst: Option<Buffer>) -> Option<Self>;
}

mod sealed {
    use meshwright_backend::Buffer;

    pub trait Sealed {}
    impl Sealed for Buffer {}
    impl Sealed for Option<Buffer> {}
    impl Sealed for () {}
}

impl PendingResult for Buffer {
    fn from_buffer(dst: Option<Buffer>) -> Option<Buffer> {
        dst
    }
}

impl PendingResult for Option<Buffer> {
    fn from_buffer(dst: Option<Buffer>) -> Option<Option<Buffer>> {
        Some(dst)
    }
}

impl PendingResult for () {
    fn from_buffer(_: Option<Buffer>) -> Option<()> {
        Some(())
    }
}

impl<T: PendingResult> PendingCall<T> {
    /// Creates the handle of a call that `member` has issued at `site`, with its index in the recorder.
    pub(super) fn new(
        completion: Completion,
        member: &Arc<GroupMember>,
        site: &Site,
        index: Option<u64>,
    ) -> Self {
        let (member, site) = (Arc::clone(member), site.clone());
        let number = index.and_then(|index| NonZeroU64::new(index + 1));
        PendingCall { completion, member, site, number, result: PhantomData }
    }

    /// Waits until the call is complete and returns its buffer. For device memory, the compute stream of the device
    /// waits; the host only waits until every member has issued the call.
    ///
    /// # Errors
    /// As the blocking call; the buffers are lost then.
    pub fn wait(self) -> Result<T, CommError> {
        let PendingCall { completion, member, site, number, .. } = self;
        let accounting = &member.accounting;
        let outcome = if completion.has_outcome() {
            completion.wait()
        } else {
            let start = Instant::now();
            let _inside = accounting.enter("wait:", &site, start);
            let outcome = completion.wait();
            accounting.add_blocked_since(start);
            outcome
        };
        if let Some(number) = number {
            accounting.record_outcome(number.get() - 1, outcome.as_ref().err());
        }
        claim(&member, &site, outcome)
    }

    /// Returns true if the call has completed or failed, so that [`wait`](Self::wait) does not block the host.
    pub fn is_complete(&self) -> bool {
        self.completion.has_outcome()
    }
}

/// Returns the result of a call, usable on the compute stream from now on.
pub(super) fn claim<T: PendingResult>(
    member: &GroupMember,
    site: &Site,
    outcome: Outcome,
) -> Result<T, CommError> {
    let in_use = outcome?;
    let dst = if in_use.is_pending() {
        member.accounting.compute_waits(site, || in_use.claim())
    } else {
        in_use.claim()
    };
    // The value is claimed once, and an engine returns the buffer that it was given.
    dst.and_then(T::from_buffer).ok_or(CommError::Closed { rank: member.world_rank() })
}
