//! The file of one rank.

use serde::{Deserialize, Serialize};

/// The last calls of a rank, as a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankRecord {
    /// Version of the format.
    pub meshwright_flight: u32,
    /// Identifier of the run.
    pub run: String,
    pub rank: usize,
    /// Number of ranks.
    pub world: usize,
    /// Time of the file in microseconds of Unix time, as all times.
    pub written: u64,
    pub end: End,
    /// The message of the failure.
    pub message: Option<String>,
    /// The rank whose end has stopped this one.
    pub stopped_by: Option<usize>,
    /// The step that the rank was in, from 1; 0 before the first.
    pub step: u64,
    pub groups: Vec<GroupRecord>,
    /// The oldest first.
    pub calls: Vec<FlightCall>,
}

/// The state of a rank at the time of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It runs, and a signal has asked for the file.
    Running,
    /// It has returned.
    Returned,
    /// It has failed by itself.
    Failed,
    /// It has failed because a call has.
    CallFailed,
}

/// A process group of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRecord {
    pub axes: String,
    /// World ranks, by group rank.
    pub members: Vec<usize>,
    /// Number of blocking collectives so far.
    pub blocking: u64,
    /// Number of asynchronous collectives so far.
    pub asynchronous: u64,
    /// Number of messages sent to each member and received from it so far.
    pub messages: Vec<[u64; 2]>,
}

/// A call of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlightCall {
    /// Number of earlier calls of the rank.
    pub index: u64,
    pub step: u64,
    /// Axes of the group.
    pub axes: String,
    pub sequence: Sequence,
    /// Position in the sequence, from 1.
    pub number: u64,
    pub op: String,
    pub reduce: Option<String>,
    pub dtype: Option<String>,
    /// Number of elements that all members agree on; 0 if there is none.
    pub elements: u64,
    /// Payload bytes that the rank sends.
    pub bytes: u64,
    /// World rank of the root, or of the other end of a message.
    pub peer: Option<usize>,
    pub field: String,
    pub issued: u64,
    /// The time at which the transfer began, if it is known.
    pub started: Option<u64>,
    pub ended: Option<u64>,
    /// Time of its long steps in microseconds, if there were some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_steps: Option<u64>,
}

/// The sequences of calls of a group; each keeps its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sequence {
    /// Blocking collectives.
    Blocking,
    /// Asynchronous collectives.
    Asynchronous,
    /// Messages to a member.
    Sent,
    /// Messages from a member.
    Received,
}

/// The version of the format.
pub const VERSION: u32 = 1;

impl FlightCall {
    /// Describes the operation with its arguments.
    pub fn operation(&self) -> String {
        let words = [self.reduce.clone(), self.dtype.clone()];
        let mut words: Vec<String> = words.into_iter().flatten().collect();
        if self.elements > 0 {
            words.push(format!("x {}", self.elements));
        }
        match (self.sequence, self.peer) {
            (Sequence::Sent, Some(peer)) => words.push(format!("to rank {peer}")),
            (Sequence::Received, Some(peer)) => words.push(format!("from rank {peer}")),
            (_, Some(peer)) => words.push(format!("root rank {peer}")),
            (_, None) => {}
        }
        let arguments =
            if words.is_empty() { String::new() } else { format!("({})", words.join(" ")) };
        format!("{}{arguments} of `{}` over {}", self.op, self.field, self.axes)
    }

    /// Returns true if the calls of two members match, as far as both have to agree.
    pub fn matches(&self, other: &FlightCall) -> bool {
        let of = |call: &FlightCall| {
            let is_message = matches!(call.sequence, Sequence::Sent | Sequence::Received);
            let key = (call.reduce.clone(), call.dtype.clone(), call.elements);
            // Both ends of a message name each other, and may be different fields.
            let collective = (call.op.clone(), call.field.clone(), call.peer);
            (key, (!is_message).then_some(collective))
        };
        of(self) == of(other)
    }
}
