//! The state of a process group that its members share.

use std::sync::Arc;

use crate::rank_table::{ExitCause, RankTable};
use crate::{CommError, GroupMember};
use meshwright_mesh::AxisSet;

use super::group_status::GroupStatus;
use super::mailbox::Mailbox;
use super::rendezvous::RendezvousChannel;

/// The state of a process group that its members share.
pub struct SharedGroup {
    status: GroupStatus,
    /// Blocking collectives.
    pub blocking: RendezvousChannel,
    /// Asynchronous collectives.
    pub asynchronous: RendezvousChannel,
    /// Messages, by receiver.
    pub mailboxes: Box<[Mailbox]>,
}

impl SharedGroup {
    /// Creates the group of `member`; `exits` has the exits of members that have left before.
    pub fn new(
        member: &GroupMember,
        ranks: Arc<RankTable>,
        exits: Vec<Option<ExitCause>>,
    ) -> SharedGroup {
        let deadlock = &ranks.deadlock;
        let mailbox = |owner| Mailbox::new(owner, exits.clone(), deadlock);
        SharedGroup {
            mailboxes: (0..member.size()).map(mailbox).collect(),
            blocking: RendezvousChannel::new(exits.clone(), deadlock),
            asynchronous: RendezvousChannel::new(exits, deadlock),
            status: GroupStatus::new(member, ranks),
        }
    }

    /// The mesh axes along which the members differ.
    pub fn axes(&self) -> AxisSet {
        self.status.axes
    }

    /// World ranks of the members, by group rank.
    pub fn world_ranks(&self) -> &[usize] {
        &self.status.world_ranks
    }

    /// All ranks of the process.
    pub fn ranks(&self) -> &Arc<RankTable> {
        &self.status.ranks
    }

    /// Runs a step of a call on one of the channels, and notifies all waiting members if it has failed the group.
    pub fn run_step<T>(&self, step: impl FnOnce(&GroupStatus) -> T) -> T {
        let had_failed = self.status.failure().is_some();
        let outcome = step(&self.status);
        if !had_failed && self.status.failure().is_some() {
            self.notify_all();
        }
        outcome
    }

    /// Sets the failure of all calls, unless there is one; [`notify_all`](Self::notify_all) must follow.
    pub fn set_failure(&self, failure: &CommError) {
        self.status.set_failure(failure);
    }

    /// Notifies all waiting members.
    pub fn notify_all(&self) {
        self.blocking.notify_all();
        self.asynchronous.notify_all();
        self.mailboxes.iter().for_each(|mailbox| mailbox.notify_all(&self.status));
    }

    /// Ends the blocking collectives and messages of `member`.
    pub fn leave_blocking(&self, member: usize, cause: &ExitCause) {
        self.blocking.leave(member, cause);
        self.mailboxes.iter().for_each(|mailbox| mailbox.leave(&self.status, member, cause));
    }

    /// Ends the asynchronous collectives of `member`.
    pub fn leave_asynchronous(&self, member: usize, cause: &ExitCause) {
        self.asynchronous.leave(member, cause);
    }
}
