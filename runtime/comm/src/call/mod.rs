//! A collective or message as a value: the operation, its arguments, and the call site.

mod check;
mod compare;
mod display;

use std::sync::Arc;

use meshwright_backend::DType;
use meshwright_mesh::AxisSet;

use super::{Blocks, CommError, ReduceOp, Site};

pub(super) use compare::CallDifference;
pub use display::axes_name;

/// An operation with all arguments that the members of a group must agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CommOp {
    AllReduce { op: ReduceOp, count: usize },
    AllGather { blocks: Blocks },
    ReduceScatter { blocks: Blocks },
    AllToAll { send: Arc<[usize]>, recv: Arc<[usize]> },
    Broadcast { root: Peer, count: usize },
    Reduce { root: Peer, op: ReduceOp, count: usize },
    Scatter { root: Peer, counts: Arc<[usize]> },
    Gather { root: Peer, counts: Arc<[usize]> },
    Barrier,
    Send { to: Peer, count: usize },
    Recv { from: Peer, count: usize },
}

/// A rank by its two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Index in the process group.
    pub group_rank: usize,
    /// Rank in the mesh.
    pub world_rank: usize,
}

/// A call that one rank issues in one process group.
#[derive(Debug, Clone)]
pub struct Call {
    /// The operation.
    pub op: CommOp,
    /// Element type; `None` for a barrier.
    pub dtype: Option<DType>,
    /// Set if the operands are in device memory.
    pub on_device: bool,
    /// The axes of the process group.
    pub axes: AxisSet,
    /// Set if the call returns a [`PendingCall`](super::PendingCall).
    pub asynchronous: bool,
    /// The call site.
    pub site: Site,
    /// Payload bytes that this rank sends, as [`CommStats::bytes`](super::CommStats) counts them.
    pub bytes: usize,
    /// Index in the [flight recorder](super::flight) of the rank.
    pub(crate) index: u64,
}

impl CommOp {
    /// Names of all operations, by [code](Self::code).
    const NAMES: [&str; 11] = [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "broadcast",
        "reduce",
        "scatter",
        "gather",
        "barrier",
        "send",
        "recv",
    ];

    /// Name of the operation, without its arguments.
    pub fn name(&self) -> &'static str {
        CommOp::name_of(self.code())
    }

    /// Returns the name of the operation with a [code](Self::code).
    pub(super) fn name_of(code: u8) -> &'static str {
        CommOp::NAMES[usize::from(code)]
    }

    /// Number of the operation.
    pub(super) fn code(&self) -> u8 {
        match self {
            CommOp::AllReduce { .. } => 0,
            CommOp::AllGather { .. } => 1,
            CommOp::ReduceScatter { .. } => 2,
            CommOp::AllToAll { .. } => 3,
            CommOp::Broadcast { .. } => 4,
            CommOp::Reduce { .. } => 5,
            CommOp::Scatter { .. } => 6,
            CommOp::Gather { .. } => 7,
            CommOp::Barrier => 8,
            CommOp::Send { .. } => 9,
            CommOp::Recv { .. } => 10,
        }
    }

    /// The root of a rooted collective.
    pub fn root(&self) -> Option<Peer> {
        match self {
            CommOp::Broadcast { root, .. }
            | CommOp::Reduce { root, .. }
            | CommOp::Scatter { root, .. }
            | CommOp::Gather { root, .. } => Some(*root),
            _ => None,
        }
    }

    /// Returns `true` for point-to-point operations.
    pub fn is_point_to_point(&self) -> bool {
        matches!(self, CommOp::Send { .. } | CommOp::Recv { .. })
    }

    /// Returns the payload bytes that member `group_rank` of `size` members sends.
    pub(super) fn bytes_sent(&self, dtype: Option<DType>, group_rank: usize, size: usize) -> usize {
        let element = dtype.map_or(0, DType::bytes);
        let to_others = |counts: &[usize]| counts.iter().sum::<usize>() - counts[group_rank];
        // `bytes (p-1) / p`, without overflow.
        let shared = |bytes: usize| bytes / size * (size - 1) + bytes % size * (size - 1) / size;
        match self {
            CommOp::AllReduce { count, .. } => 2 * shared(count * element),
            CommOp::AllGather { blocks } | CommOp::ReduceScatter { blocks } => {
                shared(blocks.total() * element)
            }
            CommOp::Broadcast { count, .. } | CommOp::Reduce { count, .. } => {
                shared(count * element)
            }
            CommOp::AllToAll { send, .. } => to_others(send) * element,
            CommOp::Scatter { root, counts } if root.group_rank == group_rank => {
                to_others(counts) * element
            }
            CommOp::Gather { root, counts } if root.group_rank != group_rank => {
                counts[group_rank] * element
            }
            CommOp::Send { count, .. } => count * element,
            CommOp::Scatter { .. }
            | CommOp::Gather { .. }
            | CommOp::Barrier
            | CommOp::Recv { .. } => 0,
        }
    }
}

impl Call {
    /// Returns an error about an argument of this call.
    pub fn refuse(&self, problem: impl Into<String>) -> CommError {
        CommError::Argument { call: self.to_string(), problem: problem.into() }
    }
}
