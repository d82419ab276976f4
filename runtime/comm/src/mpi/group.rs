//! One rank in a process group: the issue of its calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use meshwright_backend::Category;

use crate::accounting::TransferStart;
use crate::{
    Call, CommError, CommOp, Completion, FILE_TIME_LIMIT, GroupMember, Operands, ProcessGroup,
    Promise,
};

use super::driver::{EngineEnd, MpiDriver};
use super::job::MpiJob;
use super::memory::CallMemory;
use super::scratch::ScratchAllocator;

/// State of the rank's groups.
pub struct MpiShared {
    pub rank: usize,
    pub timeout: Duration,
    /// Set while calls are issued that may wait for files.
    pub waits_for_files: AtomicBool,
    pub driver: Arc<MpiDriver>,
    pub scratch: Arc<ScratchAllocator>,
    pub failure: Arc<OnceLock<CommError>>,
}

impl MpiShared {
    /// Time limit of a call that is issued now.
    pub fn time_limit(&self) -> Duration {
        let waits_for_files = self.waits_for_files.load(Ordering::Relaxed);
        if waits_for_files { self.timeout.max(FILE_TIME_LIMIT) } else { self.timeout }
    }

    /// Ends all calls, without a further MPI call.
    pub fn abort(&self) {
        self.failure.get_or_init(|| CommError::Closed { rank: self.rank });
        self.driver.end(EngineEnd::Abort);
    }

    fn closed(&self) -> CommError {
        let closed = CommError::Closed { rank: self.rank };
        self.failure.get().cloned().unwrap_or(closed)
    }
}

impl Drop for MpiShared {
    fn drop(&mut self) {
        self.abort();
    }
}

/// A rank in a process group.
pub struct MpiGroup {
    pub member: Arc<GroupMember>,
    /// Index of the communicators.
    pub index: usize,
    pub shared: Arc<MpiShared>,
}

impl ProcessGroup for MpiGroup {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        if call.on_device {
            return Completion::completed(Err(call.refuse("MPI moves host memory only")));
        }
        if let Some(failure) = self.shared.failure.get() {
            return Completion::completed(Err(failure.clone()));
        }
        match (&call.op, operands) {
            (op, operands) if self.member.size() == 1 && !op.is_point_to_point() => {
                self.run_alone(call, operands)
            }
            (CommOp::Send { .. }, operands) => self.send(call, operands),
            (_, operands @ Operands::Borrowed { .. }) => self.run(call, operands),
            (_, Operands::Owned { src, dst }) => {
                let (promise, completion) = Completion::promised(self.member.world_rank());
                let in_place = src.is_none();
                let memory = CallMemory::owned(src, dst);
                // A refused call drops its promise, which reports that the rank has left.
                let _ = self.submit(call, memory, in_place, Some(promise));
                self.shared.driver.wake();
                let driver = Arc::clone(&self.shared.driver);
                completion.and_at_wait(move |is_known| driver.advance_until(is_known))
            }
        }
    }
}

impl MpiGroup {
    /// Carries out a collective of a group of one rank.
    fn run_alone(&self, call: &Call, mut operands: Operands<'_>) -> Completion {
        let start = TransferStart::blocking(Instant::now());
        if let (Some(src), Some(mut dst)) = operands.views_mut() {
            dst.bytes_mut().copy_from_slice(src.bytes());
        }
        self.member.accounting.finish_transfer(call, start);
        let (_, dst) = operands.into_buffers();
        Completion::completed(Ok(dst))
    }

    /// Starts a message. Neither form waits for the receiver: the engine keeps the data until then.
    fn send(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        let data = match operands {
            Operands::Borrowed { src: Some(data), .. } => {
                let (dtype, len) = (data.dtype(), data.len());
                let mut copy = self.shared.scratch.get().alloc(dtype, len, Category::Communication);
                copy.view_mut().bytes_mut().copy_from_slice(data.bytes());
                Some(Arc::new(copy))
            }
            operands => operands.into_buffers().0,
        };
        let memory = CallMemory::owned(data, None);
        let submitted = self.submit(call, memory, false, None);
        self.shared.driver.wake();
        Completion::completed(submitted.map(|()| None))
    }

    /// Carries out a blocking call.
    fn run(&self, call: &Arc<Call>, mut operands: Operands<'_>) -> Completion {
        let in_place = matches!(&operands, Operands::Borrowed { src: None, .. });
        // SAFETY: this function returns after the outcome.
        let memory = unsafe { CallMemory::lent(&mut operands) };
        let (promise, completion) = Completion::promised(self.shared.rank);
        if let Err(error) = self.submit(call, memory, in_place, Some(promise)) {
            return Completion::completed(Err(error));
        }
        self.shared.driver.advance_until(&|| completion.has_outcome());
        let outcome = completion.wait().map_err(|error| match error {
            CommError::Closed { .. } => self.shared.closed(),
            other => other,
        });
        Completion::completed(outcome.map(|_| None))
    }

    fn submit(
        &self,
        call: &Arc<Call>,
        memory: CallMemory,
        in_place: bool,
        reply: Option<Promise>,
    ) -> Result<(), CommError> {
        let job = MpiJob {
            call: Arc::clone(call),
            member: Arc::clone(&self.member),
            group: self.index,
            memory,
            in_place,
            reply,
            limit: self.shared.time_limit(),
        };
        self.shared.driver.issue(job).map_err(|_| self.shared.closed())
    }
}
