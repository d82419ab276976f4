//! The seat of a rank in one group.

use std::sync::Arc;

use crate::backend::{Buffer, DType, View, ViewMut};
use crate::comm::account::Account;
use crate::comm::call::{Call, Op};
use crate::comm::{Blocks, CommError, CommStats, Communicator, Pending, ReduceOp, Site};
use crate::layout::AxisSet;

use super::api::Comm;
use super::engine::Core;
use super::plan::Planner;
use super::work::Work;

/// One rank in one group.
pub struct NcclCommunicator {
    pub(super) core: Arc<Core>,
    axes: AxisSet,
    members: Vec<usize>,
    pub(super) member: usize,
    /// None where the rank is alone.
    pub(super) comm: Option<Comm>,
    pub(super) account: Arc<Account>,
}

pub(super) type Outcome = Result<(), CommError>;

impl NcclCommunicator {
    pub fn new(
        core: Arc<Core>,
        axes: AxisSet,
        members: Vec<usize>,
        member: usize,
        comm: Option<Comm>,
        account: Arc<Account>,
    ) -> NcclCommunicator {
        NcclCommunicator { core, axes, members, member, comm, account }
    }

    pub(super) fn call(&self, op: Op, data: View<'_>, asynchronous: bool, site: &Site) -> Call {
        let (dtype, on_device) = (Some(data.dtype()), data.device().is_some());
        Call { op, dtype, on_device, axes: self.axes, asynchronous, site: site.clone() }
    }

    pub(super) fn planner(&self, dtype: DType) -> Planner {
        Planner { members: self.members.len(), member: self.member, dtype }
    }

    /// The world rank of a member; one that does not exist is refused later.
    pub(super) fn world_rank(&self, member: usize) -> usize {
        self.members.get(member).copied().unwrap_or(member)
    }

    pub(super) fn own_rank(&self) -> usize {
        self.world_rank(self.member)
    }
}

impl Communicator for NcclCommunicator {
    fn rank(&self) -> usize {
        self.member
    }

    fn members(&self) -> &[usize] {
        &self.members
    }

    fn axes(&self) -> AxisSet {
        self.axes
    }

    fn all_reduce(&self, site: &Site, op: ReduceOp, data: ViewMut<'_>) -> Outcome {
        let work = self.all_reduce_work(false, site, op, data.as_view());
        self.complete(work, None, Some(data))
    }

    fn all_gather(&self, site: &Site, src: View<'_>, dst: ViewMut<'_>, blocks: &Blocks) -> Outcome {
        let work = self.all_gather_work(false, site, src, dst.as_view(), blocks);
        self.complete(work, Some(src), Some(dst))
    }

    fn reduce_scatter(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Outcome {
        let work = self.reduce_scatter_work(false, site, src, dst.as_view(), blocks);
        self.complete(work, Some(src), Some(dst))
    }

    fn all_to_all(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        send: &[usize],
        recv: &[usize],
    ) -> Outcome {
        let work = self.all_to_all_work(false, site, src, dst.as_view(), send, recv);
        self.complete(work, Some(src), Some(dst))
    }

    fn broadcast(&self, site: &Site, root: usize, data: ViewMut<'_>) -> Outcome {
        let work = self.broadcast_work(false, site, root, data.as_view());
        self.complete(work, None, Some(data))
    }

    fn reduce(&self, site: &Site, root: usize, op: ReduceOp, data: ViewMut<'_>) -> Outcome {
        let work = self.reduce_work(false, site, root, op, data.as_view());
        self.complete(work, None, Some(data))
    }

    fn scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<View<'_>>,
        dst: ViewMut<'_>,
        counts: &[usize],
    ) -> Outcome {
        let work = self.scatter_work(false, site, root, src, dst.as_view(), counts);
        self.complete(work, src, Some(dst))
    }

    fn gather(
        &self,
        site: &Site,
        root: usize,
        src: View<'_>,
        dst: Option<ViewMut<'_>>,
        counts: &[usize],
    ) -> Outcome {
        let whole = dst.as_ref().map(ViewMut::as_view);
        let work = self.gather_work(false, site, root, src, whole, counts);
        self.complete(work, Some(src), dst)
    }

    fn send(&self, site: &Site, to: usize, data: View<'_>) -> Outcome {
        self.send_copy(site, to, data)
    }

    fn recv(&self, site: &Site, from: usize, data: ViewMut<'_>) -> Outcome {
        self.receive(site, from, data)
    }

    fn barrier(&self, site: &Site) -> Outcome {
        let mut one = [0f32];
        let (data, op, count) = (ViewMut::from(&mut one[..]), ReduceOp::Max, 1);
        let call = Call { dtype: None, ..self.call(Op::Barrier, data.as_view(), false, site) };
        // The sum is on the host, so that this returns when all members have come.
        let work = Work::new(call, move |planner, _, data| planner.all_reduce(data, count, op));
        self.complete(Ok(work), None, Some(data))
    }

    fn start_all_reduce(&self, site: &Site, op: ReduceOp, data: Buffer) -> Pending {
        let work = self.all_reduce_work(true, site, op, data.view());
        self.start(work, None, data, |data| Some(data.view_mut()))
    }

    fn start_all_gather(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        blocks: &Blocks,
    ) -> Pending {
        let work = self.all_gather_work(true, site, src.view(), dst.view(), blocks);
        self.start(work, Some(src), dst, |dst| Some(dst.view_mut()))
    }

    fn start_all_gather_in_place(&self, site: &Site, data: Buffer, blocks: &Blocks) -> Pending {
        let op = Op::AllGather { blocks: blocks.clone() };
        let work = self.in_place_work(
            op,
            site,
            data.view(),
            blocks,
            |planner, whole, own, blocks, aside| planner.all_gather(own, whole, blocks, aside),
        );
        self.start(work, None, data, |data| Some(data.view_mut()))
    }

    fn start_reduce_scatter(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        blocks: &Blocks,
    ) -> Pending {
        let work = self.reduce_scatter_work(true, site, src.view(), dst.view(), blocks);
        self.start(work, Some(src), dst, |dst| Some(dst.view_mut()))
    }

    fn start_reduce_scatter_in_place(&self, site: &Site, data: Buffer, blocks: &Blocks) -> Pending {
        let op = Op::ReduceScatter { blocks: blocks.clone() };
        let steps = |planner: &Planner, whole, own, blocks: &Blocks, aside| {
            planner.reduce_scatter(whole, own, blocks, aside)
        };
        let float = self.call(op.clone(), data.view(), true, site).require_float();
        let work = float.and_then(|()| self.in_place_work(op, site, data.view(), blocks, steps));
        self.start(work, None, data, |data| Some(data.view_mut()))
    }

    fn start_all_to_all(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        send: &[usize],
        recv: &[usize],
    ) -> Pending {
        let work = self.all_to_all_work(true, site, src.view(), dst.view(), send, recv);
        self.start(work, Some(src), dst, |dst| Some(dst.view_mut()))
    }

    fn start_broadcast(&self, site: &Site, root: usize, data: Buffer) -> Pending {
        let work = self.broadcast_work(true, site, root, data.view());
        self.start(work, None, data, |data| Some(data.view_mut()))
    }

    fn start_reduce(&self, site: &Site, root: usize, op: ReduceOp, data: Buffer) -> Pending {
        let work = self.reduce_work(true, site, root, op, data.view());
        self.start(work, None, data, |data| Some(data.view_mut()))
    }

    fn start_scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<Arc<Buffer>>,
        dst: Buffer,
        counts: &[usize],
    ) -> Pending {
        let whole = src.as_ref().map(|src| src.view());
        let work = self.scatter_work(true, site, root, whole, dst.view(), counts);
        self.start(work, src, dst, |dst| Some(dst.view_mut()))
    }

    fn start_gather(
        &self,
        site: &Site,
        root: usize,
        src: Arc<Buffer>,
        dst: Option<Buffer>,
        counts: &[usize],
    ) -> Pending<Option<Buffer>> {
        let whole = dst.as_ref().map(Buffer::view);
        let work = self.gather_work(true, site, root, src.view(), whole, counts);
        self.start(work, Some(src), dst, |dst| dst.as_mut().map(Buffer::view_mut))
    }

    fn start_send(&self, site: &Site, to: usize, data: Arc<Buffer>) -> Pending<()> {
        let outcome = self.send_shared(site, to, data);
        self.pending(site, (), outcome.map(|()| None), None)
    }

    fn start_recv(&self, site: &Site, from: usize, mut data: Buffer) -> Pending {
        let outcome = match data.view().device().is_some() {
            true => self.queue_recv(site, from, data.view_mut(), true).map(Some),
            false => self.receive(site, from, data.view_mut()).map(|()| None),
        };
        self.pending(site, data, outcome, None)
    }

    fn stats(&self) -> CommStats {
        self.account.read()
    }
}
