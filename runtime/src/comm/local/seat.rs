//! One rank in one group: how it enters its calls.

use std::sync::Arc;

use crate::backend::{DType, View, ViewMut};
use crate::comm::call::{Call, Op};
use crate::comm::stats::Counters;
use crate::comm::{CommError, Site};

use super::group::Group;
use super::lane::{Attendance, Post};
use super::operand::Operand;

/// One rank in one group.
pub struct Seat {
    pub group: Arc<Group>,
    /// Index of the rank in the group.
    pub member: usize,
    pub counters: Arc<Counters>,
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
        self.counters.count(0);
        self.meet(self.call(Mode::Synchronous, site, Op::Barrier, None), Operand::None).map(drop)
    }

    pub fn send(&self, site: &Site, to: usize, data: View<'_>) -> Outcome {
        let op = Op::Send { to: self.world_root(to), count: data.len() };
        let call = self.call(Mode::Synchronous, site, op, Some(data.dtype()));
        self.check_member(&call, "to", to)?;
        self.counters.count(data.bytes().len());
        let call = self.note(call);
        self.group.mailboxes[to].send(&self.group, (self.member, to), &call, data)
    }

    pub fn recv(&self, site: &Site, from: usize, data: ViewMut<'_>) -> Outcome {
        let op = Op::Recv { from: self.world_root(from), count: data.len() };
        let call = self.call(Mode::Synchronous, site, op, Some(data.dtype()));
        self.check_member(&call, "from", from)?;
        self.counters.count(0);
        let call = self.note(call);
        let mailbox = &self.group.mailboxes[self.member];
        mailbox.recv(&self.group, (from, self.member), &call, data, &self.counters)
    }

    pub(super) fn call(&self, mode: Mode, site: &Site, op: Op, dtype: Option<DType>) -> Call {
        let asynchronous = mode == Mode::Asynchronous;
        Call { op, dtype, axes: self.group.axes, asynchronous, site: site.clone() }
    }

    fn note(&self, call: Call) -> Arc<Call> {
        let call = Arc::new(call);
        self.group.roster.note_call(self.world_rank(), &call);
        call
    }

    pub(super) fn meet(&self, call: Call, operand: Operand) -> Result<Attendance<'_>, CommError> {
        // The thread that waits in an asynchronous call is not the rank's own.
        let (lane, blocked) = match call.asynchronous {
            false => (&self.group.calls, Some(&*self.counters)),
            true => (&self.group.started, None),
        };
        let post = Post { call: self.note(call), operand };
        lane.meet(&self.group, self.member, post, blocked)
    }

    /// The share of `bytes` that the other members hold: `bytes (p-1) / p`.
    pub(super) fn shared(&self, bytes: usize) -> usize {
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
