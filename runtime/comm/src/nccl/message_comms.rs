//! The communicators of point-to-point messages.

use super::api::Comm;
use super::pair_comms::PairComms;

/// The communicators of the messages of a rank along `pp`.
#[derive(Debug)]
pub enum MessageComms {
    /// One communicator for each pair of ranks and direction.
    PerPair(PairComms),
    /// One for all messages; none if the rank is alone.
    Grouped(Option<Comm>),
}

/// Communicator and stream of a message between two members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub comm: Comm,
    /// Number of the stream among the streams of messages.
    pub stream: usize,
    /// The sender's rank in the communicator.
    pub sender: usize,
    /// The receiver's rank in the communicator.
    pub receiver: usize,
}

impl Default for MessageComms {
    fn default() -> MessageComms {
        MessageComms::PerPair(PairComms::default())
    }
}

impl MessageComms {
    /// Returns the path of messages from `from` to `to`, two of `members` members.
    pub fn route(&self, from: usize, to: usize, members: usize) -> Option<Route> {
        match self {
            MessageComms::PerPair(pairs) => {
                let (comm, stream) = (pairs.get(from, to)?, from * members + to);
                Some(Route { comm, stream, sender: 0, receiver: 1 })
            }
            MessageComms::Grouped(comm) => {
                let is_other = from != to;
                let comm = comm.filter(|_| is_other)?;
                Some(Route { comm, stream: 0, sender: from, receiver: to })
            }
        }
    }

    /// Returns true if all messages share one communicator.
    pub fn are_grouped(&self) -> bool {
        matches!(self, MessageComms::Grouped(_))
    }
}
