//! Errors of calls, and the detection of failed ranks.

use std::time::{Duration, Instant};

use crate::call::{CallDifference, axes_name};
use crate::rank_table::name_ranks;
use crate::{Call, CommError, GroupMember, Peers, RankExit};

use super::exchange::MpiExchangeError;
use super::library::MessageArrival;
use super::tags::CallTags;

/// Time for failure detection to report a failed rank: the library may notice it first, but cannot name the rank.
const DETECTION_TIME: Duration = Duration::from_millis(500);

/// Period of polling while a failed rank is looked for.
const PERIOD: Duration = Duration::from_millis(10);

/// A call, and its number among the collectives of its group and kind.
#[derive(Clone, Copy)]
pub struct NumberedCall<'a> {
    pub call: &'a Call,
    pub member: &'a GroupMember,
    /// Counted from 1; 0 for a message.
    pub number: u64,
}

impl NumberedCall<'_> {
    /// Returns the error of a failed exchange: that of a failed rank if one caused it.
    pub fn failed_exchange(
        &self,
        error: MpiExchangeError,
        tags: &CallTags,
        peers: &dyn Peers,
    ) -> CommError {
        match error {
            MpiExchangeError::Other { peer, sent } => self.mismatch(peer, sent, tags),
            MpiExchangeError::MpiLibrary { peer, problem } => {
                let peer = self.member.world_ranks()[peer];
                let problem = format!("the message with rank {peer} failed: {problem}");
                match await_failed_peer(peers) {
                    Some(failed) => self.peer_left(failed, format!(" ({problem})")),
                    None => self.engine_error(problem),
                }
            }
        }
    }

    /// Returns the error of a call that cannot complete because another rank has ended.
    pub fn peer_left(&self, (rank, exit): (usize, RankExit), detail: String) -> CommError {
        CommError::PeerLeft { rank, exit, call: self.call.to_string(), detail }
    }

    /// Returns the error of a call that waited too long for `missing`, given by group rank. `idle` describes ranks
    /// without progress.
    pub fn timed_out(&self, waited: Duration, missing: &[usize], idle: &str) -> CommError {
        let rank = self.member.world_rank();
        CommError::Timeout {
            call: self.call.to_string(),
            waited,
            missing: missing.iter().map(|peer| self.member.world_ranks()[*peer]).collect(),
            last_calls: format!("rank {rank}: {}{}", self.call, of_others(idle)),
        }
    }

    pub fn engine_error(&self, problem: String) -> CommError {
        let rank = self.member.world_rank();
        CommError::Engine { rank, call: self.call.to_string(), problem }
    }

    /// Returns the error of a call whose member `peer` has issued another one.
    fn mismatch(&self, peer: usize, sent: MessageArrival, tags: &CallTags) -> CommError {
        let NumberedCall { call, member, number } = *self;
        let peer_rank = member.world_ranks()[peer];
        let known = if number > 0 { tags.find_call(sent.tag, number) } else { None };
        let (other, hint) = match known {
            // As an all-to-all whose lengths differ.
            Some(known) if known.op == call.op => {
                (message_of(call, sent), CallDifference::Count.hint())
            }
            Some(known) => {
                let calls = [(member.group_rank(), call), (peer, known)];
                let difference = Call::first_difference(&calls).unwrap_or(CallDifference::Field);
                (known.to_string(), difference.hint())
            }
            None => (message_of(call, sent), UNKNOWN_CALL),
        };
        let own = name_ranks(&[member.world_rank()]);
        CommError::Mismatch {
            group: format!("{} {:?}", axes_name(member.axes()), member.world_ranks()),
            number,
            calls: format!("  {own}: {call}\n  {}: {other}\n", name_ranks(&[peer_rank])),
            hint,
        }
    }
}

/// The hint for a call that this rank has never issued, or a message.
const UNKNOWN_CALL: &str = "The message of that rank names the call that it was in: look for control flow around these \
                            lines that differs by rank, and at sizes that depend on each rank's own data.";

/// Describes a message of an unknown call.
fn message_of(call: &Call, sent: MessageArrival) -> String {
    let length = format!("of {} bytes", sent.bytes);
    if call.op.is_point_to_point() {
        format!("a message {length}, of another content, length or dtype")
    } else {
        format!("a part {length} of another call")
    }
}

/// Returns the lines about ranks without progress in all processes, if there are any.
fn of_others(idle: &str) -> String {
    if idle.is_empty() { String::new() } else { format!("\nRanks without progress:{idle}") }
}

/// Waits until a failed rank is reported, for a limited time.
fn await_failed_peer(peers: &dyn Peers) -> Option<(usize, RankExit)> {
    let start = Instant::now();
    loop {
        match peers.failed_peer() {
            None if start.elapsed() < DETECTION_TIME => std::thread::sleep(PERIOD),
            found => return found,
        }
    }
}
