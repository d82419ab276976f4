//! One rank's access to a process group, and the path of its collectives.

mod submit;

use std::sync::Arc;
use std::time::Instant;

use crate::accounting::Accounting;
use crate::{Call, CommError, CommOp, Completion, GroupMember, Operands, ProcessGroup};
use meshwright_backend::{Buffer, Category, DType, DeviceEvent, StreamKind, View, ViewMut};

use super::api::Comm;
use super::plan::{CollectiveMemory, Planner};
use super::rank_resources::RankResources;
use submit::Submitted;

/// One rank in one process group.
pub struct NcclGroup {
    pub(super) resources: Arc<RankResources>,
    pub(super) member: Arc<GroupMember>,
    /// `None` if the rank is alone in the group.
    pub(super) comm: Option<Comm>,
}

pub(super) type CallResult = Result<(), CommError>;

impl ProcessGroup for NcclGroup {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        if !call.op.is_point_to_point() {
            return self.issue_collective(call, operands);
        }
        let mut completions = self.issue_messages(vec![(Arc::clone(call), operands)]);
        completions.pop().expect("a completion for each message")
    }

    fn issue_exchange(&self, calls: Vec<(Arc<Call>, Operands<'_>)>) -> Vec<Completion> {
        if self.groups_messages() {
            return self.issue_messages(calls);
        }
        calls.into_iter().map(|(call, operands)| self.issue(&call, operands)).collect()
    }

    fn groups_messages(&self) -> bool {
        self.resources.message_comms.are_grouped()
    }
}

impl NcclGroup {
    pub(super) fn accounting(&self) -> &Arc<Accounting> {
        &self.member.accounting
    }

    pub(super) fn planner(&self, dtype: DType) -> Planner {
        let (members, member) = (self.member.size(), self.member.group_rank());
        Planner { members, member, dtype }
    }

    fn issue_collective(&self, call: &Arc<Call>, mut operands: Operands<'_>) -> Completion {
        let (src, dst) = operands.views_mut();
        if !call.on_device {
            let outcome = self.run_on_host_memory(call, src, dst);
            let (_, dst) = operands.into_buffers();
            return Completion::completed(outcome.map(|()| dst));
        }
        let memory = CollectiveMemory {
            src: src.map(|src| src.address() as u64),
            dst: dst.map_or(0, |dst| dst.address() as u64),
        };
        match self.submit(call, memory) {
            Ok(Submitted { end, scratch }) => self.completion(operands, end).with_scratch(scratch),
            Err(error) => Completion::completed(Err(error)),
        }
    }

    /// Runs a collective on copies of host memory in device memory, and waits for it.
    fn run_on_host_memory(
        &self,
        call: &Arc<Call>,
        src: Option<View<'_>>,
        dst: Option<ViewMut<'_>>,
    ) -> CallResult {
        let RankResources { device, watchdog, .. } = &*self.resources;
        // The main thread waits here also for an asynchronous call.
        let _inside = call
            .asynchronous
            .then(|| self.accounting().enter(call.op.name(), &call.site, Instant::now()));
        // A barrier is a reduction of one element, so that it returns when all members have arrived.
        let mut flag = [0f32];
        let is_barrier = call.op == CommOp::Barrier;
        let mut dst = if is_barrier { Some(ViewMut::from(&mut flag[..])) } else { dst };
        let src = src.map(|src| self.staged_copy(src));
        let staged = dst.as_ref().map(|dst| self.staged_copy(dst.as_view()));
        let address = |copy: &Buffer| copy.view().address() as u64;
        let (src, target) = (src.as_ref().map(address), staged.as_ref().map_or(0, address));
        // The scratch is held until the end of this function.
        let Submitted { end, scratch: _scratch } =
            self.submit(call, CollectiveMemory { src, dst: target })?;
        device.wait_for(StreamKind::Compute, &end);
        // Not by a wait of the CUDA driver, which would not notice that the call has failed.
        watchdog.wait_for_event(&end)?;
        if let (Some(dst), Some(staged)) = (&mut dst, staged)
            && !dst.is_empty()
        {
            // SAFETY: `staged` holds as many elements.
            unsafe { device.download(staged.view().address(), dst.bytes_mut()) };
        }
        Ok(())
    }

    /// Copies host memory to a staging buffer of the device.
    pub(super) fn staged_copy(&self, view: View<'_>) -> Buffer {
        let device = &self.resources.device;
        let mut copy =
            self.resources.allocator().alloc(view.dtype(), view.len(), Category::Communication);
        if !view.is_empty() {
            // SAFETY: the copy has room for the elements, and is exclusive.
            unsafe { device.upload(copy.view_mut().address(), view.bytes()) };
        }
        copy
    }

    /// The completion of a call on device memory whose work ends at an event.
    pub(super) fn completion(&self, operands: Operands<'_>, end: DeviceEvent) -> Completion {
        let (src, dst) = operands.into_buffers();
        Completion::at_event(dst, src, &self.resources.device, end)
    }
}
