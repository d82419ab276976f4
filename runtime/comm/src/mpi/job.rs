//! Calls in progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwright_backend::{Buffer, CachingAllocator, DType};

use crate::accounting::TransferStart;
use crate::{Call, CommError, CommOp, GroupMember, Promise};

use super::exchange::{CallTag, MpiExchange, MpiExchangeError};
use super::failure::NumberedCall;
use super::library::{MpiComm, MpiLibrary};
use super::memory::CallMemory;
use super::plan::{CallPlan, CallStep, plan_call};

/// Time from which on a step of a call is noted. Most take microseconds.
const LONG_STEP: Duration = Duration::from_millis(1);

/// A call that a rank has issued.
pub struct MpiJob {
    pub call: Arc<Call>,
    pub member: Arc<GroupMember>,
    /// Index of the communicators.
    pub group: usize,
    pub memory: CallMemory,
    /// Set if the destination is also the source.
    pub in_place: bool,
    /// The recipient of the outcome. `None` for a send, which nothing waits for.
    pub reply: Option<Promise>,
    /// The time limit, from the time on at which the call is in progress.
    pub limit: Duration,
}

/// A job whose messages may be in progress.
pub struct RunningMpiJob {
    job: MpiJob,
    plan: CallPlan,
    /// Index of the next step.
    next: usize,
    exchange: Option<MpiExchange>,
    tag: CallTag,
    /// Position among the collectives of its group and kind, from 1; 0 for a message.
    number: u64,
    begun: Instant,
    start: TransferStart,
}

impl RunningMpiJob {
    /// Begins a job. Unwinds if there is no memory for its scratch.
    pub fn begin(
        mut job: MpiJob,
        (tag, number): (CallTag, u64),
        allocator: &Arc<CachingAllocator>,
    ) -> RunningMpiJob {
        let plan = plan_call(&job.call, &job.member, (job.in_place, job.memory.owns_target()));
        job.memory.add_scratch(plan.scratch, allocator);
        let begun = Instant::now();
        let start = transfer_start(&job, begun);
        RunningMpiJob { job, plan, next: 0, exchange: None, tag, number, begun, start }
    }

    /// The call, for errors.
    pub fn call(&self) -> NumberedCall<'_> {
        NumberedCall { call: &self.job.call, member: &self.job.member, number: self.number }
    }

    /// Index of the communicators.
    pub fn group(&self) -> usize {
        self.job.group
    }

    /// Returns the group rank of the member whose message has not arrived yet, for a receive.
    pub fn awaited_peer(&self) -> Option<usize> {
        let CommOp::Recv { from, .. } = &self.job.call.op else { return None };
        let has_arrived =
            self.next > 0 && !self.exchange.as_ref().is_some_and(MpiExchange::awaits_arrival);
        (!has_arrived).then_some(from.group_rank)
    }

    /// Advances the call as far as possible. Returns true if anything was done. A step that takes long is noted: the
    /// library, or the process, is slower than those of others.
    pub fn advance(
        &mut self,
        library: &MpiLibrary,
        comm: MpiComm,
    ) -> Result<bool, MpiExchangeError> {
        let begun = Instant::now();
        let advanced = self.advance_steps(library, comm);
        let taken = begun.elapsed();
        if taken > LONG_STEP {
            self.job.member.accounting.add_slow_step(&self.job.call, taken);
        }
        advanced
    }

    fn advance_steps(
        &mut self,
        library: &MpiLibrary,
        comm: MpiComm,
    ) -> Result<bool, MpiExchangeError> {
        let mut has_advanced = false;
        loop {
            if let Some(exchange) = &mut self.exchange {
                has_advanced |= exchange.advance((library, comm, self.tag))? > 0;
                let step = self.plan.steps.get(self.next - 1);
                // The transfer of a receive begins with the arrival of its message.
                let is_timed = self.job.call.op.is_point_to_point()
                    || matches!(step, Some(CallStep::Exchange { is_announced: true, .. }));
                if let (true, Some(begun)) = (is_timed, exchange.begun()) {
                    self.start = transfer_start(&self.job, begun);
                }
                if !exchange.is_complete() {
                    return Ok(has_advanced);
                }
                self.exchange = None;
            }
            let Some(step) = self.plan.steps.get(self.next) else { return Ok(has_advanced) };
            (self.next, has_advanced) = (self.next + 1, true);
            let memory = &mut self.job.memory;
            let at = (library, comm, self.tag);
            self.exchange = match step {
                CallStep::Exchange { is_announced, sends, receives } => {
                    let member = &self.job.member;
                    let others = (0..member.size())
                        .filter(|peer| *is_announced && *peer != member.group_rank());
                    // SAFETY: the buffers live in this job until the exchange is complete, or are leaked; lent memory
                    // until the outcome, which follows it.
                    Some(unsafe { MpiExchange::start(at, memory, others, (sends, receives))? })
                }
                local => {
                    memory.run_step(local, self.job.call.dtype.unwrap_or(DType::F32));
                    None
                }
            };
        }
    }

    /// Returns true if all steps are done.
    pub fn is_complete(&self) -> bool {
        self.exchange.is_none() && self.next == self.plan.steps.len()
    }

    /// Returns true after the time limit.
    pub fn is_late(&self) -> bool {
        self.begun.elapsed() > self.job.limit
    }

    /// Returns the error of a call that is too late.
    pub fn timed_out(&self, idle: &str) -> CommError {
        let missing = match &self.exchange {
            Some(exchange) => exchange.missing(),
            None => self.awaited_peer().into_iter().collect(),
        };
        self.call().timed_out(self.job.limit, &missing, idle)
    }

    /// Reports the result.
    pub fn finish(self) {
        let MpiJob { call, member, memory, reply, .. } = self.job;
        if call.op.is_point_to_point() {
            member.accounting.finish_message(&call, self.start, false);
        } else {
            member.accounting.finish_transfer(&call, self.start);
        }
        report(reply, Ok(memory.into_target()));
    }

    /// Ends the call with an error. The memory that messages in progress may still use is leaked.
    pub fn fail(self, error: CommError) {
        if self.exchange.is_some() {
            self.job.memory.leak();
        }
        report(self.job.reply, Err(error));
    }
}

impl MpiJob {
    /// The call, for errors.
    pub fn numbered(&self) -> NumberedCall<'_> {
        NumberedCall { call: &self.call, member: &self.member, number: 0 }
    }

    /// Ends a call that has not begun.
    pub fn refuse(self, error: CommError) {
        report(self.reply, Err(error));
    }
}

fn report(reply: Option<Promise>, outcome: Result<Option<Buffer>, CommError>) {
    if let Some(promise) = reply {
        promise.fulfill(outcome);
    }
}

fn transfer_start(job: &MpiJob, at: Instant) -> TransferStart {
    if job.call.asynchronous {
        TransferStart { at, exposed: job.member.accounting.clock.read(at) }
    } else {
        TransferStart::blocking(at)
    }
}
