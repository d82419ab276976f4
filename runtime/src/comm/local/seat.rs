//! One rank in one group: how it enters its calls.

use std::sync::Arc;

use crate::backend::DType;
use crate::comm::account::Account;
use crate::comm::call::{Call, Op};
use crate::comm::pending::Promise;
use crate::comm::{CommError, Pending, Site};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Synchronous,
    Asynchronous,
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
        self.meet(self.call(Mode::Synchronous, site, Op::Barrier, None), Operand::None).map(drop)
    }

    /// The handle of an asynchronous call, and the end through which its result arrives.
    pub fn promise<T>(&self, site: &Site) -> (Promise<T>, Pending<T>) {
        Pending::new(self.world_rank(), &self.account, &self.group.roster.activity, site)
    }

    pub(super) fn call(&self, mode: Mode, site: &Site, op: Op, dtype: Option<DType>) -> Call {
        let asynchronous = mode == Mode::Asynchronous;
        Call { op, dtype, axes: self.group.axes, asynchronous, site: site.clone() }
    }

    pub(super) fn note(&self, call: Call) -> Arc<Call> {
        let call = Arc::new(call);
        self.group.roster.note_call(self.world_rank(), &call);
        call
    }

    /// Enters a call. An asynchronous one was [counted](Self::count) when it was issued.
    pub(super) fn meet(&self, call: Call, operand: Operand) -> Result<Attendance<'_>, CommError> {
        let bytes = self.sent(&call.op, call.dtype);
        if !call.asynchronous {
            self.account.count(bytes);
        }
        let (call, account) = (self.note(call), &*self.account);
        let (lane, inside, own_thread) = match call.asynchronous {
            false => {
                let inside = account.enter(call.op.name(), &call.site);
                (&self.group.calls, Some(inside), None)
            }
            true => (&self.group.started, None, Some(Arc::clone(&account.own_thread))),
        };
        let post = Post { call, operand, own_thread };
        lane.meet(&self.group, post, Visitor { member: self.member, bytes, account, inside })
    }

    /// Counts a call that is issued now.
    pub(super) fn count(&self, op: &Op, dtype: DType) {
        self.account.count(self.sent(op, Some(dtype)));
    }

    /// Bytes that this rank sends in a call, as [`CommStats`](crate::comm::CommStats) counts them.
    fn sent(&self, op: &Op, dtype: Option<DType>) -> usize {
        let element = dtype.map_or(0, DType::bytes);
        // Counts of another number than there are members are refused when the call is carried out.
        let own = |counts: &[usize]| counts.get(self.member).copied().unwrap_or(0);
        let to_others = |counts: &[usize]| counts.iter().sum::<usize>() - own(counts);
        match op {
            Op::AllReduce { count, .. } => 2 * self.shared(count * element),
            Op::AllGather { blocks } | Op::ReduceScatter { blocks } => {
                self.shared(blocks.total() * element)
            }
            Op::Broadcast { count, .. } | Op::Reduce { count, .. } => self.shared(count * element),
            Op::AllToAll { send, .. } => to_others(send) * element,
            Op::Scatter { root, counts } if *root == self.world_rank() => {
                to_others(counts) * element
            }
            Op::Gather { root, counts } if *root != self.world_rank() => own(counts) * element,
            Op::Send { count, .. } => count * element,
            Op::Scatter { .. } | Op::Gather { .. } | Op::Barrier | Op::Recv { .. } => 0,
        }
    }

    /// The share of `bytes` that the other members hold: `bytes (p-1) / p`.
    fn shared(&self, bytes: usize) -> usize {
        bytes / self.size() * (self.size() - 1)
            + bytes % self.size() * (self.size() - 1) / self.size()
    }

    /// The world rank of a member; one that does not exist is refused by `check_member`.
    pub(super) fn world_root(&self, member: usize) -> usize {
        self.group.members.get(member).copied().unwrap_or(member)
    }

    pub(super) fn check_member(&self, call: &Call, name: &str, member: usize) -> Outcome {
        if member < self.size() {
            return Ok(());
        }
        Err(call.refuse(format!(
            "`{name}` is {member}, but the group has the members 0 to {}",
            self.size() - 1
        )))
    }

    pub(super) fn check_counts(&self, call: &Call, name: &str, counts: &[usize]) -> Outcome {
        if counts.len() == self.size() {
            return Ok(());
        }
        Err(call.refuse(format!(
            "`{name}` has {} entries, but the group has {} members; give one entry per member",
            counts.len(),
            self.size()
        )))
    }
}
