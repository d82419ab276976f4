//! One rank in one group: how it enters its calls.

use std::sync::Arc;

use crate::backend::{DType, Device, Moment, View};
use crate::comm::account::Account;
use crate::comm::call::{Call, Op};
use crate::comm::pending::Promise;
use crate::comm::{CommError, Pending, Site};

use super::device_queue::DeviceQueue;
use super::group::Group;
use super::lane::{Attendance, Post, Visitor};
use super::operand::Operand;

/// One rank in one group.
pub struct Seat {
    pub group: Arc<Group>,
    /// Index of the rank in the group.
    pub member: usize,
    pub account: Arc<Account>,
}

/// Which lane a call takes.
#[derive(Debug, Clone)]
pub enum Mode {
    Synchronous,
    /// With the moment from which on operands in memory of a device may be used.
    Asynchronous(Option<Moment>),
}

pub type Outcome = Result<(), CommError>;

impl Seat {
    pub fn size(&self) -> usize {
        self.group.members.len()
    }

    pub fn world_rank(&self) -> usize {
        self.group.members[self.member]
    }

    pub fn barrier(&self, site: &Site) -> Outcome {
        let mode = &Mode::Synchronous;
        self.meet(self.call(mode, site, Op::Barrier, None), mode, None, Operand::None, |_| ())
    }

    /// The handle of an asynchronous call, and the end through which its result arrives.
    pub fn promise<T>(&self, site: &Site) -> (Promise<T>, Pending<T>) {
        Pending::new(self.world_rank(), &self.account, &self.group.roster.activity, site)
    }

    pub(super) fn call(&self, mode: &Mode, site: &Site, op: Op, data: Option<View<'_>>) -> Call {
        Call {
            op,
            dtype: data.map(|data| data.dtype()),
            on_device: data.is_some_and(|data| data.device().is_some()),
            axes: self.group.axes,
            asynchronous: matches!(mode, Mode::Asynchronous(_)),
            site: site.clone(),
        }
    }

    /// Where calls on `data` are queued, if it is in memory of a device.
    pub(super) fn queue(&self, mode: &Mode, data: View<'_>) -> Option<DeviceQueue> {
        data.device().map(|device| self.device_queue(mode, device))
    }

    pub(super) fn device_queue(&self, mode: &Mode, device: &Arc<dyn Device>) -> DeviceQueue {
        DeviceQueue::new(device, mode, self.group.axes.number())
    }

    pub(super) fn note(&self, call: Call) -> Arc<Call> {
        let call = Arc::new(call);
        self.group.roster.note_call(self.world_rank(), &call);
        call
    }

    /// Goes through a call with `share`, what this member does with the operands of all. `data` is one of its own. An
    /// asynchronous call was [counted](Self::count) when it was issued.
    pub(super) fn meet(
        &self,
        call: Call,
        mode: &Mode,
        data: Option<View<'_>>,
        operand: Operand,
        share: impl FnOnce(&Attendance<'_>),
    ) -> Outcome {
        let bytes = call.op.sent(call.dtype, self.member, &self.group.members);
        if !call.asynchronous {
            self.account.count(bytes);
        }
        let (call, account) = (self.note(call), &self.account);
        let (lane, inside, own_thread) = match call.asynchronous {
            false => {
                let inside = account.enter(call.op.name(), &call.site);
                (&self.group.calls, Some(inside), None)
            }
            true => (&self.group.started, None, Some(Arc::clone(&account.own_thread))),
        };
        let queue = data.and_then(|data| self.queue(mode, data));
        let ready = queue.as_ref().map(|queue| queue.ready.clone());
        let post = Post { call, operand, ready, own_thread };
        let visitor = Visitor { member: self.member, bytes, account, queue, inside };
        let mut meeting = lane.meet(&self.group, post, visitor)?;
        meeting.wait_for_operands();
        share(&meeting);
        meeting.part_in_order();
        Ok(())
    }

    /// Counts a call that is issued now.
    pub(super) fn count(&self, op: &Op, dtype: DType) {
        self.account.count(op.sent(Some(dtype), self.member, &self.group.members));
    }

    /// The world rank of a member; one that does not exist is refused by `check_member`.
    pub(super) fn world_root(&self, member: usize) -> usize {
        self.group.members.get(member).copied().unwrap_or(member)
    }

    pub(super) fn check_member(&self, call: &Call, name: &str, member: usize) -> Outcome {
        call.require_member(name, member, self.size())
    }

    pub(super) fn check_counts(&self, call: &Call, name: &str, counts: &[usize]) -> Outcome {
        call.require_counts(name, counts, self.size())
    }
}
