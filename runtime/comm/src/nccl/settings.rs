//! Settings of the engine of one rank.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::Peers;
use meshwright_mesh::MeshShape;

/// The path of messages between ranks along `pp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessagePath {
    /// A communicator and a stream for each pair of ranks and direction, so that a message waits for its receiver
    /// alone.
    #[default]
    PerPair,
    /// One communicator and one stream for all messages of a rank: the messages of an exchange are submitted as one
    /// group. It is for installations on which a send that waits holds up the messages of other streams.
    Grouped,
}

/// Text that is not a [`MessagePath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a message path: use `edges` (a communicator per pair of ranks, the default) or `grouped`"
)]
pub struct ParseMessagePathError(String);

impl FromStr for MessagePath {
    type Err = ParseMessagePathError;

    fn from_str(text: &str) -> Result<MessagePath, ParseMessagePathError> {
        match text {
            "edges" => Ok(MessagePath::PerPair),
            "grouped" => Ok(MessagePath::Grouped),
            _ => Err(ParseMessagePathError(text.to_owned())),
        }
    }
}

impl fmt::Display for MessagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MessagePath::PerPair => "edges",
            MessagePath::Grouped => "grouped",
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
}
