//! What the members of a group share.

use std::sync::{Arc, OnceLock};

use crate::comm::CommError;
use crate::comm::call::{Call, Difference, axes_name};
use crate::layout::AxisSet;

use super::lane::{Halt, Lane};
use super::mailbox::Mailbox;
use super::roster::{Ending, Roster};

/// One group of ranks.
pub struct Group {
    pub axes: AxisSet,
    /// World ranks.
    pub members: Box<[usize]>,
    pub roster: Arc<Roster>,
    /// Once set, every call fails with it. Here and not in each lane, so that it appears in all of them at once: a rank
    /// that it makes end is not mistaken for the cause.
    failure: OnceLock<CommError>,
    /// Synchronous calls.
    pub calls: Lane,
    /// Asynchronous calls.
    pub started: Lane,
    /// Messages, by receiver.
    pub mailboxes: Box<[Mailbox]>,
}

impl Group {
    /// A group; `endings` are those of members that have left before it was made.
    pub fn new(
        axes: AxisSet,
        members: Vec<usize>,
        roster: Arc<Roster>,
        endings: Vec<Option<Ending>>,
    ) -> Group {
        let activity = &roster.activity;
        let mailbox = |owner| Mailbox::new(owner, endings.clone(), activity);
        Group {
            axes,
            mailboxes: (0..members.len()).map(mailbox).collect(),
            members: members.into(),
            calls: Lane::new(endings.clone(), activity),
            started: Lane::new(endings, activity),
            roster,
            failure: OnceLock::new(),
        }
    }

    /// Every member gets `failure` from its calls from now on, and from those in which it waits.
    pub fn fail(&self, failure: &CommError) {
        self.condemn(failure);
        self.wake();
    }

    /// The first half of [`fail`](Self::fail): sets the failure, unless there is one.
    pub fn condemn(&self, failure: &CommError) {
        self.failure.get_or_init(|| failure.clone());
    }

    /// The second half: lets everyone who waits see it.
    pub fn wake(&self) {
        self.calls.wake();
        self.started.wake();
        self.mailboxes.iter().for_each(|mailbox| mailbox.wake(self));
    }

    pub fn failure(&self) -> Option<&CommError> {
        self.failure.get()
    }

    /// A member makes no synchronous calls any more, and takes no messages.
    pub fn leave_calls(&self, member: usize, ending: &Ending) {
        self.calls.leave(member, ending);
        self.mailboxes.iter().for_each(|mailbox| mailbox.leave(self, member, ending));
    }

    /// A member makes no asynchronous calls any more.
    pub fn leave_started(&self, member: usize, ending: &Ending) {
        self.started.leave(member, ending);
    }

    /// The error of `member`, whose `call` does not take place.
    pub fn explain(&self, halt: Halt, call: &Call, member: usize) -> CommError {
        let own_rank = self.members[member];
        match halt {
            Halt::Failure(failure) => failure,
            // The own progress thread may see the end of a rank that ended because of this one.
            Halt::Left(left, ending) if left == member || ending.rank == own_rank => {
                CommError::Closed { rank: own_rank }
            }
            Halt::Left(left, ending) => {
                self.roster.note_stopped(own_rank, &ending);
                let missing = self.members[left];
                let mut detail = String::new();
                if missing != ending.rank {
                    detail +=
                        &format!(" It waits for rank {missing}, which stopped because of that.");
                }
                detail += &format!(" Last call of {}", self.roster.last_call(missing));
                CommError::PeerLeft {
                    rank: ending.rank,
                    departure: ending.departure,
                    call: call.to_string(),
                    detail,
                }
            }
            Halt::Timeout(missing) => {
                let last_calls = self.members.iter().map(|rank| self.roster.last_call(*rank));
                let error = CommError::Timeout {
                    call: call.to_string(),
                    waited: self.roster.timeout,
                    missing: missing.iter().map(|member| self.members[*member]).collect(),
                    last_calls: last_calls.collect::<Vec<_>>().join("\n"),
                };
                self.fail(&error);
                error
            }
        }
    }

    /// The error of all members, of which some issued `calls` that differ.
    pub fn mismatch(
        &self,
        calls: &[(usize, &Call)],
        number: u64,
        difference: Difference,
    ) -> CommError {
        // Members that issued the same call from the same place share a line.
        let mut lines: Vec<(String, Vec<usize>)> = Vec::new();
        for (member, call) in calls {
            let rank = &self.members[*member];
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
        CommError::Mismatch { group: self.name(), number, calls: text, hint: difference.hint() }
    }

    fn name(&self) -> String {
        format!("{} {:?}", axes_name(self.axes), self.members)
    }
}

/// `rank 3`, `ranks 0, 2`.
pub fn name_ranks(ranks: &[usize]) -> String {
    let list: Vec<_> = ranks.iter().map(usize::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, list.join(", "))
}
