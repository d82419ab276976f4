//! The seat as users see it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::backend::{Buffer, DType, Device, DeviceFailure, Queue, View, ViewMut};
use crate::comm::account::Account;
use crate::comm::busy::Busy;
use crate::comm::call::Op;
use crate::comm::{Blocks, CommError, CommStats, Communicator, Pending, ReduceOp, Site};
use crate::layout::AxisSet;

use super::device_queue::DeviceQueue;
use super::group::Group;
use super::progress::{Job, Progress};
use super::seat::{Mode, Seat};

/// A seat with its progress threads.
pub struct LocalCommunicator {
    seat: Arc<Seat>,
    /// Carries out the asynchronous collectives.
    progress: Progress,
    /// Copies the asynchronous messages: never waits for another rank.
    messages: Progress,
}

impl LocalCommunicator {
    pub fn new(group: Arc<Group>, member: usize, account: Account) -> LocalCommunicator {
        let seat = Seat { group, member, account: Arc::new(account) };
        LocalCommunicator {
            seat: Arc::new(seat),
            progress: Progress::new(),
            messages: Progress::new(),
        }
    }

    /// Waits for the asynchronous calls, and takes no more.
    pub fn close(&self) {
        self.progress.close();
        self.messages.close();
    }

    /// Runs `work` on the progress thread, but counts it now: what a step issues belongs to that step. `kind` is that of
    /// its operands; `held` is a source that has to stay alive until a device is done with it.
    fn start<T: Send + 'static>(
        &self,
        site: &Site,
        op: Op,
        (dtype, device): Kind,
        held: Option<&Arc<Buffer>>,
        work: impl FnOnce(&Seat, &Mode, &Site) -> Result<T, CommError> + Send + 'static,
    ) -> Pending<T> {
        self.seat.count(&op, dtype);
        let (promise, pending) = self.seat.promise(site);
        // What is computed after this does not hold up the call.
        let ready = device.as_ref().map(|device| device.mark(Queue::Compute));
        let mode = Mode::Asynchronous(ready);
        let held = device.as_ref().and(held).map(Arc::clone);
        let site = site.clone();
        let job = move |seat: &Seat| {
            let queue = device.as_ref().map(|device| seat.device_queue(&mode, device));
            let work = || {
                let value = work(seat, &mode, &site)?;
                let end = queue.as_ref().map(DeviceQueue::mark);
                Ok(Busy::until(value, device.as_ref(), end).holding(held))
            };
            promise.keep(reported(op.name(), &site, work));
        };
        // A job that is refused is dropped, and its `Pending` says that the rank has left.
        let _ = self.progress.submit(&self.seat, Box::new(job));
        pending
    }

    /// Does what is left to do for a message. Others may wait for it, so that it is done in any case.
    fn carry(&self, job: Option<Job>) {
        if let Some(job) = job
            && let Err(job) = self.messages.submit(&self.seat, job)
        {
            job(&self.seat);
        }
    }

    /// As `start`, for work on a buffer, which comes back.
    fn start_on(
        &self,
        site: &Site,
        op: Op,
        mut data: Buffer,
        held: Option<&Arc<Buffer>>,
        work: impl FnOnce(&Seat, &Mode, &Site, ViewMut<'_>) -> Result<(), CommError> + Send + 'static,
    ) -> Pending {
        self.start(site, op, kind(&data), held, move |seat, mode, site| {
            work(seat, mode, site, data.view_mut())?;
            Ok(data)
        })
    }
}

/// The dtype of a buffer, and the device that holds it.
type Kind = (DType, Option<Arc<dyn Device>>);

fn kind(buffer: &Buffer) -> Kind {
    (buffer.dtype(), buffer.view().device().cloned())
}

/// The result of `work`; an error where the device fails, which unwinds.
fn reported<T>(
    name: &str,
    site: &Site,
    work: impl FnOnce() -> Result<T, CommError>,
) -> Result<T, CommError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        match payload.downcast::<DeviceFailure>() {
            Ok(failure) => {
                let call = format!("asynchronous {name}, issued by {site}");
                Err(CommError::Device { call, failure: *failure })
            }
            Err(payload) => resume_unwind(payload),
        }
    })
}

impl Drop for LocalCommunicator {
    fn drop(&mut self) {
        self.close();
    }
}

const SYNC: &Mode = &Mode::Synchronous;

impl Communicator for LocalCommunicator {
    fn rank(&self) -> usize {
        self.seat.member
    }

    fn members(&self) -> &[usize] {
        &self.seat.group.members
    }

    fn axes(&self) -> AxisSet {
        self.seat.group.axes
    }

    fn all_reduce(&self, site: &Site, op: ReduceOp, data: ViewMut<'_>) -> Result<(), CommError> {
        self.seat.all_reduce(SYNC, site, op, data)
    }

    fn all_gather(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Result<(), CommError> {
        self.seat.all_gather(SYNC, site, src, dst, blocks)
    }

    fn reduce_scatter(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Result<(), CommError> {
        self.seat.reduce_scatter(SYNC, site, src, dst, blocks)
    }

    fn all_to_all(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        send: &[usize],
        recv: &[usize],
    ) -> Result<(), CommError> {
        self.seat.all_to_all(SYNC, site, src, dst, send, recv)
    }

    fn broadcast(&self, site: &Site, root: usize, data: ViewMut<'_>) -> Result<(), CommError> {
        self.seat.broadcast(SYNC, site, root, data)
    }

    fn reduce(
        &self,
        site: &Site,
        root: usize,
        op: ReduceOp,
        data: ViewMut<'_>,
    ) -> Result<(), CommError> {
        self.seat.reduce(SYNC, site, root, op, data)
    }

    fn scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<View<'_>>,
        dst: ViewMut<'_>,
        counts: &[usize],
    ) -> Result<(), CommError> {
        self.seat.scatter(SYNC, site, root, src, dst, counts)
    }

    fn gather(
        &self,
        site: &Site,
        root: usize,
        src: View<'_>,
        dst: Option<ViewMut<'_>>,
        counts: &[usize],
    ) -> Result<(), CommError> {
        self.seat.gather(SYNC, site, root, src, dst, counts)
    }

    fn send(&self, site: &Site, to: usize, data: View<'_>) -> Result<(), CommError> {
        self.seat.send(site, to, data)
    }

    fn recv(&self, site: &Site, from: usize, data: ViewMut<'_>) -> Result<(), CommError> {
        self.seat.recv(site, from, data)
    }

    fn barrier(&self, site: &Site) -> Result<(), CommError> {
        self.seat.barrier(site)
    }

    fn start_all_reduce(&self, site: &Site, op: ReduceOp, data: Buffer) -> Pending {
        let call = Op::AllReduce { op, count: data.len() };
        self.start_on(site, call, data, None, move |seat, mode, site, data| {
            seat.all_reduce(mode, site, op, data)
        })
    }

    fn start_all_gather(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        blocks: &Blocks,
    ) -> Pending {
        let blocks = blocks.clone();
        let call = Op::AllGather { blocks: blocks.clone() };
        self.start_on(site, call, dst, Some(&Arc::clone(&src)), move |seat, mode, site, dst| {
            seat.all_gather(mode, site, src.view(), dst, &blocks)
        })
    }

    fn start_all_gather_in_place(&self, site: &Site, data: Buffer, blocks: &Blocks) -> Pending {
        let blocks = blocks.clone();
        let call = Op::AllGather { blocks: blocks.clone() };
        self.start_on(site, call, data, None, move |seat, mode, site, data| {
            seat.all_gather_in_place(mode, site, data, &blocks)
        })
    }

    fn start_reduce_scatter(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        blocks: &Blocks,
    ) -> Pending {
        let blocks = blocks.clone();
        let call = Op::ReduceScatter { blocks: blocks.clone() };
        self.start_on(site, call, dst, Some(&Arc::clone(&src)), move |seat, mode, site, dst| {
            seat.reduce_scatter(mode, site, src.view(), dst, &blocks)
        })
    }

    fn start_reduce_scatter_in_place(&self, site: &Site, data: Buffer, blocks: &Blocks) -> Pending {
        let blocks = blocks.clone();
        let call = Op::ReduceScatter { blocks: blocks.clone() };
        self.start_on(site, call, data, None, move |seat, mode, site, data| {
            seat.reduce_scatter_in_place(mode, site, data, &blocks)
        })
    }

    fn start_all_to_all(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        send: &[usize],
        recv: &[usize],
    ) -> Pending {
        let call = Op::AllToAll { send: send.into(), recv: recv.into() };
        let (send, recv) = (send.to_vec(), recv.to_vec());
        self.start_on(site, call, dst, Some(&Arc::clone(&src)), move |seat, mode, site, dst| {
            seat.all_to_all(mode, site, src.view(), dst, &send, &recv)
        })
    }

    fn start_broadcast(&self, site: &Site, root: usize, data: Buffer) -> Pending {
        let call = Op::Broadcast { root: self.seat.world_root(root), count: data.len() };
        self.start_on(site, call, data, None, move |seat, mode, site, data| {
            seat.broadcast(mode, site, root, data)
        })
    }

    fn start_reduce(&self, site: &Site, root: usize, op: ReduceOp, data: Buffer) -> Pending {
        let call = Op::Reduce { root: self.seat.world_root(root), op, count: data.len() };
        self.start_on(site, call, data, None, move |seat, mode, site, data| {
            seat.reduce(mode, site, root, op, data)
        })
    }

    fn start_scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<Arc<Buffer>>,
        dst: Buffer,
        counts: &[usize],
    ) -> Pending {
        let root_rank = self.seat.world_root(root);
        let call = Op::Scatter { root: root_rank, counts: counts.into() };
        let counts = counts.to_vec();
        let held = src.clone();
        self.start_on(site, call, dst, held.as_ref(), move |seat, mode, site, dst| {
            let src = src.as_ref().map(|src| src.view());
            seat.scatter(mode, site, root, src, dst, &counts)
        })
    }

    fn start_gather(
        &self,
        site: &Site,
        root: usize,
        src: Arc<Buffer>,
        mut dst: Option<Buffer>,
        counts: &[usize],
    ) -> Pending<Option<Buffer>> {
        let root_rank = self.seat.world_root(root);
        let call = Op::Gather { root: root_rank, counts: counts.into() };
        let counts = counts.to_vec();
        let held = Arc::clone(&src);
        self.start(site, call, kind(&src), Some(&held), move |seat, mode, site| {
            let room = dst.as_mut().map(Buffer::view_mut);
            seat.gather(mode, site, root, src.view(), room, &counts)?;
            Ok(dst)
        })
    }

    fn start_send(&self, site: &Site, to: usize, data: Arc<Buffer>) -> Pending<()> {
        let (pending, job) = self.seat.start_send(site, to, data);
        self.carry(job);
        pending
    }

    fn start_recv(&self, site: &Site, from: usize, data: Buffer) -> Pending {
        let (pending, job) = self.seat.start_recv(site, from, data);
        self.carry(job);
        pending
    }

    fn stats(&self) -> CommStats {
        self.seat.account.read()
    }
}
