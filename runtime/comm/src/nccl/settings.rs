//! Settings of the engine of one rank.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::Peers;
use crate::process_launch::Store;
use meshwright_mesh::{AxisSet, MeshShape};

/// The path of messages between ranks along `pp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessagePath {
    /// One communicator and one stream for all messages of a rank: the messages of an exchange are submitted as one
    /// group, and can be captured in a CUDA graph.
    #[default]
    Grouped,
    /// A communicator and a stream for each pair of ranks and direction, so that a message waits for its receiver
    /// alone.
    PerPair,
}

/// Text that is not a [`MessagePath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a message path: use `grouped` (in rounds, the default) or `pairs` (a communicator per pair of ranks)"
)]
pub struct ParseMessagePathError(String);

impl FromStr for MessagePath {
    type Err = ParseMessagePathError;

    fn from_str(text: &str) -> Result<MessagePath, ParseMessagePathError> {
        match text {
            "grouped" => Ok(MessagePath::Grouped),
            "pairs" => Ok(MessagePath::PerPair),
            _ => Err(ParseMessagePathError(text.to_owned())),
        }
    }
}

impl fmt::Display for MessagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MessagePath::Grouped => "grouped",
            MessagePath::PerPair => "pairs",
        })
    }
}

/// Settings of the engine of one rank.
#[derive(Debug, Clone)]
pub struct NcclSettings {
    /// The mesh.
    pub shape: MeshShape,
    /// World rank.
    pub rank: usize,
    /// Timeout of the initialization and of each call.
    pub timeout: Duration,
    /// Failure detection.
    pub peers: Arc<dyn Peers>,
    /// The path of messages; the same on all ranks.
    pub messages: MessagePath,
    /// Registers memory that collectives reuse with the library.
    pub registers: bool,
    /// The process groups that get their communicators at the start; `None` stands for every set of axes.
    pub expected: Option<ExpectedGroups>,
}

/// Process groups that a run is known to use, out of many: every set of axes has one.
#[derive(Debug, Clone)]
pub struct ExpectedGroups {
    /// Their axes, the same on all ranks.
    pub axes: BTreeSet<AxisSet>,
    /// The store. The members of another group create its communicator through it, at its first use.
    pub store: Arc<Store>,
}
