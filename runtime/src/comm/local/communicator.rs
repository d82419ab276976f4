//! The seat as users see it.

use std::sync::Arc;

use crate::backend::{Buffer, View, ViewMut};
use crate::comm::stats::Counters;
use crate::comm::{Blocks, CommError, CommStats, Communicator, Pending, ReduceOp, Site};
use crate::layout::AxisSet;

use super::group::Group;
use super::progress::Progress;
use super::seat::{Mode, Seat};

/// A seat with its progress thread.
pub struct LocalCommunicator {
    seat: Arc<Seat>,
    progress: Progress,
}

impl LocalCommunicator {
    pub fn new(group: Arc<Group>, member: usize) -> LocalCommunicator {
        let seat = Seat { group, member, counters: Arc::new(Counters::default()) };
        LocalCommunicator { seat: Arc::new(seat), progress: Progress::new() }
    }

    /// Waits for the asynchronous calls, and takes no more.
    pub fn close(&self) {
        self.progress.close();
    }

    /// Runs `work` on the progress thread.
    fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Seat) -> Result<T, CommError> + Send + 'static,
    ) -> Pending<T> {
        let (rank, counters) = (self.seat.world_rank(), &self.seat.counters);
        let (promise, pending) = Pending::new(rank, counters, &self.seat.group.roster.activity);
        let job = move |seat: &Seat| promise.keep(work(seat));
        self.progress.submit(&self.seat, Box::new(job));
        pending
    }
}

impl Drop for LocalCommunicator {
    fn drop(&mut self) {
        self.close();
    }
}

const SYNC: Mode = Mode::Synchronous;
const ASYNC: Mode = Mode::Asynchronous;

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

    fn start_all_reduce(&self, site: &Site, op: ReduceOp, mut data: Buffer) -> Pending {
        let site = site.clone();
        self.start(move |seat| {
            seat.all_reduce(ASYNC, &site, op, data.view_mut())?;
            Ok(data)
        })
    }

    fn start_all_gather(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        mut dst: Buffer,
        blocks: &Blocks,
    ) -> Pending {
        let (site, blocks) = (site.clone(), blocks.clone());
        self.start(move |seat| {
            seat.all_gather(ASYNC, &site, src.view(), dst.view_mut(), &blocks)?;
            Ok(dst)
        })
    }

    fn start_reduce_scatter(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        mut dst: Buffer,
        blocks: &Blocks,
    ) -> Pending {
        let (site, blocks) = (site.clone(), blocks.clone());
        self.start(move |seat| {
            seat.reduce_scatter(ASYNC, &site, src.view(), dst.view_mut(), &blocks)?;
            Ok(dst)
        })
    }

    fn start_all_to_all(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        mut dst: Buffer,
        send: &[usize],
        recv: &[usize],
    ) -> Pending {
        let (site, send, recv) = (site.clone(), send.to_vec(), recv.to_vec());
        self.start(move |seat| {
            seat.all_to_all(ASYNC, &site, src.view(), dst.view_mut(), &send, &recv)?;
            Ok(dst)
        })
    }

    fn start_broadcast(&self, site: &Site, root: usize, mut data: Buffer) -> Pending {
        let site = site.clone();
        self.start(move |seat| {
            seat.broadcast(ASYNC, &site, root, data.view_mut())?;
            Ok(data)
        })
    }

    fn start_reduce(&self, site: &Site, root: usize, op: ReduceOp, mut data: Buffer) -> Pending {
        let site = site.clone();
        self.start(move |seat| {
            seat.reduce(ASYNC, &site, root, op, data.view_mut())?;
            Ok(data)
        })
    }

    fn start_scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<Arc<Buffer>>,
        mut dst: Buffer,
        counts: &[usize],
    ) -> Pending {
        let (site, counts) = (site.clone(), counts.to_vec());
        self.start(move |seat| {
            let src = src.as_ref().map(|src| src.view());
            seat.scatter(ASYNC, &site, root, src, dst.view_mut(), &counts)?;
            Ok(dst)
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
        let (site, counts) = (site.clone(), counts.to_vec());
        self.start(move |seat| {
            let room = dst.as_mut().map(Buffer::view_mut);
            seat.gather(ASYNC, &site, root, src.view(), room, &counts)?;
            Ok(dst)
        })
    }

    fn stats(&self) -> CommStats {
        self.seat.counters.read()
    }
}
