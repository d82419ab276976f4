//! Events of a step, in the order in which the host issues them.

use std::panic::Location;
use std::sync::Arc;

use meshwright_backend::{Category, Kernel};
use meshwright_comm::CommOp;
use meshwright_core::__internal::{Pass, RunningAction};
use meshwright_mesh::AxisSet;

/// An event of a step, and what the rank was computing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepEvent {
    /// Index into [`StepLog::contexts`](super::StepLog::contexts).
    pub context: ContextId,
    /// The event.
    pub kind: EventKind,
}

/// Index of a [`Context`] in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContextId(pub u32);

/// An operation of a rank, or a change of its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EventKind {
    /// A kernel on the compute stream, or a copy on the stream of transfers.
    Kernel(Kernel),
    /// A collective or message that is issued. The rank waits for it immediately unless it is asynchronous.
    Call(CommCall),
    /// A wait for an asynchronous call.
    Await {
        /// The [number](CommCall::number) of the call.
        number: u32,
        /// True for a call of the step before. It is the call of that number at the end of this step too, as steady
        /// steps are alike.
        of_previous_step: bool,
    },
    /// A buffer is allocated.
    Alloc {
        /// Number of the buffer in this step, after all of
        /// [`buffers_at_start`](super::StepLog::buffers_at_start).
        buffer: u32,
        /// Bytes of the buffer.
        bytes: u64,
        /// Purpose of the buffer.
        category: Category,
    },
    /// A buffer is freed.
    Free {
        /// Number of the buffer in this step.
        buffer: u32,
        /// Bytes of the buffer.
        bytes: u64,
        /// Purpose of the buffer.
        category: Category,
    },
}

/// A collective or message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommCall {
    /// Index among the calls of the step, from 0.
    pub number: u32,
    /// The operation.
    pub op: CommOpKind,
    /// Axes of the process group.
    pub axes: AxisSet,
    /// Ranks of the process group.
    pub group: u32,
    /// Payload bytes that this rank sends; of a receive, those that it receives.
    pub bytes: u64,
    /// True if the rank waits for it later, at an [`EventKind::Await`].
    pub is_asynchronous: bool,
    /// Identity of a message between pipeline stages, as index into [`StepLog::messages`](super::StepLog::messages).
    pub message: Option<u32>,
    /// Number of the round of a message. The messages of a round are started together, after all earlier rounds
    /// are complete, and none of them is complete before all are. `None` if messages are independent.
    pub round: Option<u32>,
    /// Index into [`StepLog::sites`](super::StepLog::sites).
    pub site: u32,
}

/// The call site of a collective or message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSite {
    /// Path of the field, or of a unit with a purpose: `blocks.1 (parameters)`.
    pub field: Arc<str>,
    /// Line of the call, if it is known.
    pub line: Option<&'static Location<'static>>,
}

macro_rules! comm_ops {
    ($($op:ident => $name:literal,)+) => {
        /// The operation of a [`CommCall`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum CommOpKind {
            $($op,)+
        }

        impl CommOpKind {
            /// All operations.
            pub const ALL: &[CommOpKind] = &[$(CommOpKind::$op,)+];

            /// Returns the name, as in `--explain`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(CommOpKind::$op => $name,)+
                }
            }
        }
    };
}

comm_ops! {
    AllReduce => "all_reduce",
    AllGather => "all_gather",
    ReduceScatter => "reduce_scatter",
    AllToAll => "all_to_all",
    Broadcast => "broadcast",
    Reduce => "reduce",
    Scatter => "scatter",
    Gather => "gather",
    Barrier => "barrier",
    Send => "send",
    Recv => "recv",
}

impl CommOpKind {
    /// Returns the kind of an operation.
    pub fn of(op: &CommOp) -> CommOpKind {
        match op {
            CommOp::AllReduce { .. } => CommOpKind::AllReduce,
            CommOp::AllGather { .. } => CommOpKind::AllGather,
            CommOp::ReduceScatter { .. } => CommOpKind::ReduceScatter,
            CommOp::AllToAll { .. } => CommOpKind::AllToAll,
            CommOp::Broadcast { .. } => CommOpKind::Broadcast,
            CommOp::Reduce { .. } => CommOpKind::Reduce,
            CommOp::Scatter { .. } => CommOpKind::Scatter,
            CommOp::Gather { .. } => CommOpKind::Gather,
            CommOp::Barrier => CommOpKind::Barrier,
            CommOp::Send { .. } => CommOpKind::Send,
            CommOp::Recv { .. } => CommOpKind::Recv,
        }
    }

    /// Returns true for messages between two ranks.
    pub const fn is_message(self) -> bool {
        matches!(self, CommOpKind::Send | CommOpKind::Recv)
    }
}

/// The part of a step that a rank computes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Context {
    /// The pass.
    pub pass: Pass,
    /// The action of the pipeline schedule; `None` without a pipeline, and before and after its actions.
    pub action: Option<RunningAction>,
    /// Path of the layer, such as `blocks.3` or `head`; empty outside of layers.
    pub layer: Arc<str>,
    /// The innermost forward function, such as `Mlp::forward`; empty outside of functions.
    pub function: &'static str,
}
