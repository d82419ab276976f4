//! The state of a process group that its members share.

use std::sync::{Arc, OnceLock};

use crate::comm::call::{Call, CallDifference, axes_name};
use crate::comm::rank_table::{ExitCause, RankTable, name_ranks};
use crate::comm::{CommError, GroupMember};
use crate::layout::AxisSet;

use super::mailbox::Mailbox;
use super::rendezvous::{Interruption, RendezvousChannel};

/// The state of a process group that its members share.
pub struct SharedGroup {
    pub axes: AxisSet,
    pub world_ranks: Box<[usize]>,
    pub ranks: Arc<RankTable>,
    /// Once set, every call fails with it. It is here and not in each channel, so that it appears in all of them at the
    /// same time: a rank that ends because of it is not mistaken for the cause.
    failure: OnceLock<CommError>,
    /// Blocking collectives.
    pub blocking: RendezvousChannel,
    /// Asynchronous collectives.
    pub asynchronous: RendezvousChannel,
    /// Messages, by receiver.
    pub mailboxes: Box<[Mailbox]>,
}

impl SharedGroup {
    /// Creates the group of `member`; `exits` are those of members that have left before.
    pub fn new(
        member: &GroupMember,
        ranks: Arc<RankTable>,
        exits: Vec<Option<ExitCause>>,
    ) -> SharedGroup {
        let deadlock = &ranks.deadlock;
        let mailbox = |owner| Mailbox::new(owner, exits.clone(), deadlock);
        SharedGroup {
            axes: member.axes(),
            world_ranks: member.world_ranks().into(),
            mailboxes: (0..member.size()).map(mailbox).collect(),
            blocking: RendezvousChannel::new(exits.clone(), deadlock),
            asynchronous: RendezvousChannel::new(exits, deadlock),
            ranks,
            failure: OnceLock::new(),
        }
    }

    /// Fails the current and all later calls of every member with `failure`.
    pub fn fail(&self, failure: &CommError) {
        self.set_failure(failure);
        self.notify_all();
    }

    /// The first half of [`fail`](Self::fail): sets the failure, unless there is one.
    pub fn set_failure(&self, failure: &CommError) {
        self.failure.get_or_init(|| failure.clone());
    }

    /// The second half: notifies all waiting members.
    pub fn notify_all(&self) {
        self.blocking.notify_all();
        self.asynchronous.notify_all();
        self.mailboxes.iter().for_each(|mailbox| mailbox.notify_all(self));
    }

    /// Returns the failure of the group, if any.
    pub fn failure(&self) -> Option<&CommError> {
        self.failure.get()
    }

    /// Ends the blocking collectives and messages of `member`.
    pub fn leave_blocking(&self, member: usize, cause: &ExitCause) {
        self.blocking.leave(member, cause);
        self.mailboxes.iter().for_each(|mailbox| mailbox.leave(self, member, cause));
    }

    /// Ends the asynchronous collectives of `member`.
    pub fn leave_asynchronous(&self, member: usize, cause: &ExitCause) {
        self.asynchronous.leave(member, cause);
    }

    /// Returns the error of `member`, whose `call` was interrupted.
    pub fn interrupted(&self, interruption: Interruption, call: &Call, member: usize) -> CommError {
        let own_rank = self.world_ranks[member];
        match interruption {
            Interruption::Failed(failure) => failure,
            // The own progress thread may see the exit of a rank that ended because of this one.
            Interruption::Left(left, cause) if left == member || cause.rank == own_rank => {
                CommError::Closed { rank: own_rank }
            }
            Interruption::Left(left, cause) => {
                self.ranks.note_stopped(own_rank, &cause);
                let missing = self.world_ranks[left];
                let mut detail = String::new();
                if missing != cause.rank {
                    detail +=
                        &format!(" It waits for rank {missing}, which stopped because of that.");
                }
                detail += &format!(" Last call of {}", self.ranks.describe_last_call(missing));
                let (rank, exit) = (cause.rank, cause.exit);
                CommError::PeerLeft { rank, exit, call: call.to_string(), detail }
            }
            Interruption::TimedOut(missing) => {
                let last_calls =
                    self.world_ranks.iter().map(|rank| self.ranks.describe_last_call(*rank));
                let error = CommError::Timeout {
                    call: call.to_string(),
                    waited: self.ranks.timeout,
                    missing: missing.iter().map(|member| self.world_ranks[*member]).collect(),
                    last_calls: last_calls.collect::<Vec<_>>().join("\n"),
                };
                self.fail(&error);
                error
            }
        }
    }

    /// Returns the error of all members, of which some issued `calls` that differ.
    pub fn mismatch(
        &self,
        calls: &[(usize, &Call)],
        number: u64,
        difference: CallDifference,
    ) -> CommError {
        // Members that issued the same call from the same site share a line.
        let mut lines: Vec<(String, Vec<usize>)> = Vec::new();
        for (member, call) in calls {
            let rank = &self.world_ranks[*member];
            let text = call.to_string();
            match lines.iter_mut().find(|(line, _)| *line == text) {
                Some((_, ranks)) => ranks.push(*rank),
                None => lines.push((text, vec![*rank])),
            }
        }
        let mut text = String::new();
        for (call, ranks) in lines {
            text += &format!("  {}: {call}\n", name_ranks(&ranks));
        }
        let group = format!("{} {:?}", axes_name(self.axes), self.world_ranks);
        CommError::Mismatch { group, number, calls: text, hint: difference.hint() }
    }
}
