//! Identity and failure of a process group, and the errors of its calls.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::call::{Call, CallDifference, axes_name};
use crate::rank_table::{ExitCause, RankTable, name_ranks};
use crate::{CommError, GroupMember};
use meshwright_mesh::AxisSet;

/// Identity and failure of a process group.
pub struct GroupStatus {
    pub axes: AxisSet,
    pub world_ranks: Box<[usize]>,
    pub ranks: Arc<RankTable>,
    /// Failure of the group, with which every later call fails. It is stored once and not in each channel, so that it
    /// appears in all channels at the same time: a rank that ends because of it is not mistaken for the cause.
    failure: OnceLock<CommError>,
}

/// Reason why a call was interrupted.
#[derive(Clone)]
pub enum Interruption {
    /// The group has failed.
    Failed(CommError),
    /// A member has left.
    Left(usize, ExitCause),
    /// Members that did not arrive in time.
    TimedOut(Vec<usize>),
}

impl GroupStatus {
    /// Creates the status of the group of `member`.
    pub fn new(member: &GroupMember, ranks: Arc<RankTable>) -> GroupStatus {
        GroupStatus {
            axes: member.axes(),
            world_ranks: member.world_ranks().into(),
            ranks,
            failure: OnceLock::new(),
        }
    }

    /// Sets the failure of the current and all later calls of every member, unless there is one. Waiting members do not
    /// notice it before they are notified.
    pub fn set_failure(&self, failure: &CommError) {
        self.failure.get_or_init(|| failure.clone());
    }

    /// Returns the failure of the group, if any.
    pub fn failure(&self) -> Option<&CommError> {
        self.failure.get()
    }

    /// Returns the longest wait of a call of `member` for other ranks.
    pub fn time_limit(&self, member: usize) -> Duration {
        self.ranks.time_limit(self.world_ranks[member])
    }

    /// Returns the error of `member`, whose `call` was interrupted. A timeout fails the group.
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
                    waited: self.time_limit(member),
                    missing: missing.iter().map(|member| self.world_ranks[*member]).collect(),
                    last_calls: last_calls.collect::<Vec<_>>().join("\n"),
                };
                self.set_failure(&error);
                error
            }
        }
    }

    /// Fails the group because some of its members issued `calls` that differ, and returns the error of all members.
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
        let error = CommError::Mismatch { group, number, calls: text, hint: difference.hint() };
        self.set_failure(&error);
        error
    }
}
