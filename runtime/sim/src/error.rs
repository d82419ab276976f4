//! Errors of a simulation.

use std::fmt;

use meshwright_comm::MessageId;
use meshwright_mesh::MeshShape;

use crate::cluster::ClusterError;

/// A step that cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A cluster that is too small.
    #[error(
        "the mesh {mesh} has {ranks} ranks, but the cluster `{cluster}` has {gpus} GPUs; use a smaller mesh"
    )]
    MeshTooLarge {
        /// The mesh.
        mesh: MeshShape,
        /// Ranks of the mesh.
        ranks: usize,
        /// Name of the cluster.
        cluster: String,
        /// GPUs of the cluster, or 1 if no level connects several.
        gpus: usize,
    },
    /// A number of logs that is not the number of positions.
    #[error(
        "{logs} logs are given, but the mesh {mesh} has {positions} positions along pp; pass one log for each"
    )]
    Positions {
        /// Number of logs.
        logs: usize,
        /// The mesh.
        mesh: MeshShape,
        /// Degree of `pp`.
        positions: usize,
    },
    /// A description of a cluster that lacks a number, such as the peak of a dtype.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A wait for a call that the log does not have before it.
    #[error(
        "event {event} of position {position} waits for call {number}, which the log does not issue before"
    )]
    UnknownCall {
        /// Position along `pp`.
        position: usize,
        /// Index of the event.
        event: usize,
        /// Number of the call.
        number: u32,
    },
    /// A message that is not sent once and received once, at two positions.
    #[error(
        "event {event} of position {position} sends or receives the {message}, but not one position sends it and \
         another one receives it"
    )]
    UnmatchedMessage {
        /// Position along `pp`.
        position: usize,
        /// Index of the event.
        event: usize,
        /// The message.
        message: MessageId,
    },
    /// Positions that wait for each other.
    #[error("the step cannot end: {}", list(.0))]
    Deadlock(Vec<BlockedPosition>),
}

/// A position along `pp` that waits forever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedPosition {
    /// The position.
    pub position: usize,
    /// Index of the event that waits.
    pub event: usize,
    /// The call that does not begin: `activation of micro-batch 3 from stage 1 to stage 2, part 0`.
    pub call: String,
}

impl fmt::Display for BlockedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlockedPosition { position, event, call } = self;
        write!(f, "event {event} of position {position} waits for {call}")
    }
}

fn list(blocked: &[BlockedPosition]) -> String {
    blocked.iter().map(BlockedPosition::to_string).collect::<Vec<_>>().join("; ")
}
