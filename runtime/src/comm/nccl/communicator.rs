//! The seat of a rank in one group: queues the steps of calls, and keeps them in order with the model.

use std::sync::Arc;

use crate::backend::{Buffer, Category, DType, Moment, Queue, View, ViewMut};
use crate::comm::account::Account;
use crate::comm::busy::Busy;
use crate::comm::call::{Call, Op};
use crate::comm::{Blocks, CommError, CommStats, Communicator, Pending, ReduceOp, Site};
use crate::layout::AxisSet;

use super::api::{Comm, On, Transfer};
use super::engine::Core;
use super::plan::{Planner, Step};
use super::work::Work;

/// One rank in one group.
pub struct NcclCommunicator {
    pub(super) core: Arc<Core>,
    axes: AxisSet,
    members: Vec<usize>,
    pub(super) member: usize,
    /// None where the rank is alone.
    comm: Option<Comm>,
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

    /// Queues a transfer, or several that begin together.
    pub(super) fn queue_group(
        &self,
        call: &str,
        on: On,
        dtype: DType,
        transfers: &[Transfer],
    ) -> Outcome {
        let Core { library, watch, .. } = &*self.core;
        let grouped = || {
            library.begin_group()?;
            for transfer in transfers {
                // SAFETY: the addresses lie inside operands of the call, which are this queue's until its end.
                unsafe { library.queue(on, dtype, transfer)? };
            }
            library.end_group()
        };
        grouped().map_err(|error| watch.fail(call, error.to_string()))?;
        watch.settle(on.comm, call)
    }

    /// Queues a call on operands in memory of the device, after what the model has queued so far. Gives when it is done;
    /// `held` is in use until then.
    fn queue_work(
        &self,
        work: Work,
        (src, dst): (u64, u64),
        held: Option<Arc<Buffer>>,
    ) -> Result<Moment, CommError> {
        let Work { call, aside, steps } = work;
        let Core { device, watch, meter, .. } = &*self.core;
        watch.check()?;
        let begin = self.account.begin();
        let bytes = call.op.sent(call.dtype, self.member, &self.members);
        self.account.count(bytes);
        let (text, dtype) = (call.to_string(), call.dtype.unwrap_or(DType::F32));
        let queue = Queue::Communication(self.axes.number());
        let aside =
            (aside > 0).then(|| Arc::new(meter.alloc(dtype, aside, Category::Communication)));
        let room = aside.as_ref().map_or(0, |aside| aside.view().address() as u64);
        device.wait_for(queue, &device.mark(Queue::Compute));
        let span = self.account.open(queue);
        for step in steps(&self.planner(dtype), src, dst, room) {
            match step {
                Step::Rows { rows, bytes, dst, dst_stride, src, src_stride } => {
                    for row in 0..rows {
                        let to = (dst as usize + row * dst_stride) as *mut u8;
                        let from = (src as usize + row * src_stride) as *const u8;
                        // SAFETY: both rows lie inside operands of the call, which are this queue's until its end.
                        unsafe { device.copy(queue, to, from, bytes) };
                    }
                }
                Step::Group(transfers) => {
                    let comm = self.comm.ok_or(CommError::Closed { rank: self.own_rank() })?;
                    let on = On { comm, stream: device.handle(queue) };
                    self.queue_group(&text, on, dtype, &transfers)?;
                }
            }
        }
        self.account.close(span, &call, bytes);
        let end = device.mark(queue);
        for held in [aside, held].into_iter().flatten() {
            watch.queued(text.clone(), end.clone(), Some(held));
        }
        watch.queued(text, end.clone(), None);
        self.account.transferred(&call, bytes, begin);
        Ok(end)
    }

    /// A call that the model waits for. Of operands on the host, copies on the device are used.
    fn complete(
        &self,
        work: Result<Work, CommError>,
        src: Option<View<'_>>,
        mut dst: Option<ViewMut<'_>>,
    ) -> Outcome {
        let work = work?;
        let Core { device, watch, meter, .. } = &*self.core;
        let _inside = self.account.enter(work.call.op.name(), &work.call.site.clone());
        let address = |view: Option<View<'_>>| view.map_or(0, |view| view.address() as u64);
        if work.call.on_device {
            let dst = dst.as_ref().map(ViewMut::as_view);
            let site = work.call.site.clone();
            let end = self.queue_work(work, (address(src), address(dst)), None)?;
            self.account.model_waits(&site, || device.wait_for(Queue::Compute, &end));
            return Ok(());
        }
        let copy_of = |view: View<'_>| {
            let mut copy = meter.alloc(view.dtype(), view.len(), Category::Communication);
            if !view.is_empty() {
                // SAFETY: the copy has room for the elements, and is exclusive.
                unsafe { device.upload(copy.view_mut().address(), view.bytes()) };
            }
            copy
        };
        let src = src.map(copy_of);
        let staged = dst.as_ref().map(|dst| copy_of(dst.as_view()));
        let addresses = [&src, &staged].map(|copy| address(copy.as_ref().map(Buffer::view)));
        let end = self.queue_work(work, addresses.into(), None)?;
        device.wait_for(Queue::Compute, &end);
        // Not by a wait of the device's library, which would not notice that the call has failed.
        watch.wait(&end)?;
        if let (Some(dst), Some(staged)) = (&mut dst, staged)
            && !dst.is_empty()
        {
            // SAFETY: `staged` holds as many elements.
            unsafe { device.download(staged.view().address(), dst.bytes_mut()) };
        }
        Ok(())
    }

    /// A call beside the model, whose `value` holds what `dst` gives. With operands on the host it is complete at once.
    fn start<T>(
        &self,
        work: Result<Work, CommError>,
        src: Option<Arc<Buffer>>,
        mut value: T,
        dst: impl FnOnce(&mut T) -> Option<ViewMut<'_>>,
    ) -> Pending<T> {
        let site = match &work {
            Ok(work) => work.call.site.clone(),
            Err(_) => Site::new("a call that was refused"),
        };
        let source = src.as_ref().map(|src| src.view());
        let on_device = work.as_ref().is_ok_and(|work| work.call.on_device);
        let outcome = match on_device {
            false => self.complete(work, source, dst(&mut value)).map(|()| None),
            true => {
                let dst = dst(&mut value).map_or(0, |dst| dst.address() as u64);
                let src = source.map_or(0, |src| src.address() as u64);
                work.and_then(|work| self.queue_work(work, (src, dst), None)).map(Some)
            }
        };
        let held = src.clone();
        self.pending(&site, value, outcome, held)
    }

    /// The handle of a call that is complete, or will be at a moment; `held` is in use until then.
    pub(super) fn pending<T>(
        &self,
        site: &Site,
        value: T,
        outcome: Result<Option<Moment>, CommError>,
        held: Option<Arc<Buffer>>,
    ) -> Pending<T> {
        let Core { device, activity, .. } = &*self.core;
        let (promise, pending) = Pending::new(self.own_rank(), &self.account, activity, site);
        promise.keep(outcome.map(|end| Busy::until(value, Some(device), end).holding(held)));
        pending
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
        let work =
            self.in_place_work(op, site, data.view(), blocks, |planner, whole, own, blocks| {
                planner.all_gather(own, whole, blocks, 0)
            });
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
        let steps = |planner: &Planner, whole, own, blocks: &Blocks| {
            planner.reduce_scatter(whole, own, blocks, 0)
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
