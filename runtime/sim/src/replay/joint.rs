//! Calls that several positions along `pp` run together: messages, and collectives over `pp`.

use std::collections::HashMap;
use std::fmt;

use meshwright_comm::__internal::axes_name;
use meshwright_comm::MessageId;
use meshwright_mesh::{AxisId, AxisSet};

use crate::error::SimError;
use crate::record::{CommCall, CommOpKind};
use crate::time::Times;

/// A call of several positions. It begins when all of them have issued it, and the one before it on its channel has
/// ended.
pub struct JointCall {
    pub kind: JointKind,
    pub seconds: f64,
    /// Index of its channel: a pair of positions and a direction, or a set of axes.
    pub channel: usize,
}

#[derive(Clone, Copy)]
pub enum JointKind {
    /// A message, its sender and its receiver.
    Message { message: MessageId, ends: [usize; 2] },
    /// A collective of all positions.
    Collective { op: CommOpKind, axes: AxisSet },
}

impl fmt::Display for JointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JointKind::Message { message, .. } => message.fmt(f),
            JointKind::Collective { op, axes } => {
                write!(f, "{} over {}", op.name(), axes_name(*axes))
            }
        }
    }
}

/// The joint calls of all positions, found by their identity.
pub struct Joints {
    positions: usize,
    calls: Vec<FoundCall>,
    messages: HashMap<MessageId, usize>,
    /// Collectives by their axes and their index at the position.
    collectives: HashMap<(AxisSet, usize), usize>,
    issued: HashMap<(usize, AxisSet), usize>,
}

enum FoundCall {
    /// A message, and for its sender and its receiver the position and the event.
    Message {
        message: MessageId,
        ends: [Option<(usize, usize)>; 2],
        bytes: u64,
    },
    Collective {
        op: CommOpKind,
        axes: AxisSet,
        seconds: f64,
    },
}

impl Joints {
    pub fn new(positions: usize) -> Joints {
        let (messages, collectives, issued) = Default::default();
        Joints { positions, calls: Vec::new(), messages, collectives, issued }
    }

    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Adds one end of a message, and returns the index of the message.
    pub fn add_message(
        &mut self,
        position: usize,
        event: usize,
        call: &CommCall,
        message: MessageId,
    ) -> Result<usize, SimError> {
        let idx = *self.messages.entry(message).or_insert(self.calls.len());
        if idx == self.calls.len() {
            self.calls.push(FoundCall::Message { message, ends: [None; 2], bytes: 0 });
        }
        let unmatched = SimError::UnmatchedMessage { position, event, message };
        let FoundCall::Message { ends, bytes, .. } = &mut self.calls[idx] else {
            return Err(unmatched);
        };
        *bytes = (*bytes).max(call.bytes);
        match ends[usize::from(call.op == CommOpKind::Recv)].replace((position, event)) {
            None if call.op.is_message() => Ok(idx),
            _ => Err(unmatched),
        }
    }

    /// Adds a collective of one position, and returns its index; `None` if other positions have no part in it.
    pub fn add_collective(
        &mut self,
        position: usize,
        call: &CommCall,
        seconds: f64,
    ) -> Option<usize> {
        let CommCall { op, axes, .. } = *call;
        if self.positions == 1 || !axes.contains(AxisId::Pp) {
            return None;
        }
        let issued = self.issued.entry((position, axes)).or_default();
        let idx = *self.collectives.entry((axes, *issued)).or_insert(self.calls.len());
        *issued += 1;
        if idx == self.calls.len() {
            self.calls.push(FoundCall::Collective { op, axes, seconds });
        }
        // Uneven parts: the largest decides.
        if let FoundCall::Collective { seconds: known, .. } = &mut self.calls[idx] {
            *known = known.max(seconds);
        }
        Some(idx)
    }

    /// Returns the calls with their times and channels.
    ///
    /// # Errors
    /// If a message has only one end, or both at one position.
    pub fn finish(self, times: &Times<'_>) -> Result<Vec<JointCall>, SimError> {
        let mut channels = HashMap::new();
        let mut of_pair: HashMap<[usize; 2], HashMap<u64, f64>> = HashMap::new();
        let mut finish = |call: FoundCall| {
            let (kind, seconds, channel) = match call {
                FoundCall::Collective { op, axes, seconds } => {
                    (JointKind::Collective { op, axes }, seconds, Channel::Axes(axes))
                }
                FoundCall::Message { message, ends: [Some((from, _)), Some((to, _))], bytes }
                    if from != to =>
                {
                    let ends = [from, to];
                    let known = of_pair.entry(ends).or_default();
                    let seconds =
                        *known.entry(bytes).or_insert_with(|| times.of_message(ends, bytes));
                    (JointKind::Message { message, ends }, seconds, Channel::Pair(ends))
                }
                FoundCall::Message { message, ends, .. } => {
                    let (position, event) = ends[0].or(ends[1]).unwrap_or_default();
                    return Err(SimError::UnmatchedMessage { position, event, message });
                }
            };
            let next = channels.len();
            Ok(JointCall { kind, seconds, channel: *channels.entry(channel).or_insert(next) })
        };
        self.calls.into_iter().map(&mut finish).collect()
    }
}

/// A stream that positions share.
#[derive(PartialEq, Eq, Hash)]
enum Channel {
    /// Sender and receiver of messages.
    Pair([usize; 2]),
    Axes(AxisSet),
}
