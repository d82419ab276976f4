//! One rank's access to a process group of the engine.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::call::{Call, CommOp};
use crate::completion::Promise;
use crate::in_use::InUse;
use crate::{CommError, Completion, Operands, ProcessGroup};
use meshwright_backend::{Buffer, Device, DeviceFailure, StreamKind};

use super::member::{IssuedCall, LocalMember};
use super::progress::{Job, ProgressThread};

/// One rank in one process group, with its progress threads.
pub struct LocalProcessGroup {
    member: Arc<LocalMember>,
    /// Carries out asynchronous collectives.
    collectives: ProgressThread,
    /// Copies asynchronous messages; never waits for another rank.
    messages: ProgressThread,
}

impl LocalProcessGroup {
    /// Creates the access of `member`, whose threads start with their first job.
    pub fn new(member: Arc<LocalMember>) -> LocalProcessGroup {
        let (collectives, messages) = (ProgressThread::new(), ProgressThread::new());
        LocalProcessGroup { member, collectives, messages }
    }

    /// Completes the asynchronous calls that were issued, and refuses further ones.
    pub fn close(&self) {
        self.collectives.close();
        self.messages.close();
    }

    /// Submits an asynchronous collective to the progress thread.
    fn start_collective(
        &self,
        call: &Arc<Call>,
        src: Option<Arc<Buffer>>,
        mut dst: Option<Buffer>,
    ) -> Completion {
        let (promise, promised) =
            Promise::new(self.member.world_rank(), &self.member.group.ranks().deadlock);
        let device = device_of(src.as_deref().or(dst.as_ref()));
        // Later computation does not hold up the call.
        let ready = device.as_ref().map(|device| device.mark_stream(StreamKind::Compute));
        let call = Arc::clone(call);
        let job = move |member: &LocalMember| {
            let ready = ready.as_ref();
            let stream = device.as_ref().map(|device| member.device_stream(&call, device, ready));
            let work = || {
                let source = src.as_ref().map(|src| src.view());
                let target = dst.as_mut().map(Buffer::view_mut);
                member.run_collective(IssuedCall { call: &call, ready }, source, target)?;
                let end = stream.as_ref().map(|stream| stream.record_event());
                Ok(InUse::until(dst, device.as_ref(), end).holding(src))
            };
            promise.report(catch_device_failure(&call, work));
        };
        // A refused job is dropped, which reports that the rank has left.
        let _ = self.collectives.submit_job(&self.member, Box::new(job));
        promised.into()
    }

    /// Carries out the rest of an asynchronous message, if any. Another rank may wait for it, so that it is done
    /// even when the thread is closed.
    fn carry_out(&self, (completion, job): (Completion, Option<Job>)) -> Completion {
        if let Some(job) = job
            && let Err(job) = self.messages.submit_job(&self.member, job)
        {
            job(&self.member);
        }
        completion
    }
}

impl ProcessGroup for LocalProcessGroup {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        let member = &self.member;
        match (&call.op, operands) {
            (CommOp::Send { to, .. }, Operands::Owned { src: Some(data), .. }) => {
                self.carry_out(member.start_send(call, *to, data))
            }
            (CommOp::Recv { from, .. }, Operands::Owned { dst: Some(data), .. }) => {
                self.carry_out(member.start_recv(call, *from, data))
            }
            (CommOp::Send { to, .. }, Operands::Borrowed { src: Some(data), .. }) => {
                blocking(member.send(call, *to, data))
            }
            (CommOp::Recv { from, .. }, Operands::Borrowed { dst: Some(data), .. }) => {
                blocking(member.recv(call, *from, data))
            }
            (_, Operands::Borrowed { src, dst }) => {
                blocking(member.run_collective(IssuedCall { call, ready: None }, src, dst))
            }
            (_, Operands::Owned { src, dst }) => self.start_collective(call, src, dst),
        }
    }
}

impl Drop for LocalProcessGroup {
    fn drop(&mut self) {
        self.close();
    }
}

fn blocking(result: Result<(), CommError>) -> Completion {
    Completion::completed(result.map(|()| None))
}

fn device_of(buffer: Option<&Buffer>) -> Option<Arc<dyn Device>> {
    buffer.and_then(|buffer| buffer.view().device().cloned())
}

/// Runs `work`, and turns a device failure, which unwinds, into an error.
fn catch_device_failure<T>(
    call: &Call,
    work: impl FnOnce() -> Result<T, CommError>,
) -> Result<T, CommError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        match payload.downcast::<DeviceFailure>() {
            Ok(failure) => {
                let call = format!("asynchronous {}, issued by {}", call.op.name(), call.site);
                Err(CommError::Device { call, failure: *failure })
            }
            Err(payload) => resume_unwind(payload),
        }
    })
}
