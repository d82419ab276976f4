//! Pipelines that cannot run.

use meshwright_comm::CommError;

/// A pipeline that cannot run. Ranks are coordinates on the axis `pp`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// A schedule for another number of ranks.
    #[error(
        "the schedule has {schedule} ranks, but the axis pp has {mesh}: pass a schedule for pp={mesh}"
    )]
    Ranks {
        /// The number of ranks of the schedule.
        schedule: usize,
        /// The degree of the axis.
        mesh: usize,
    },
    /// Ranks with different schedules.
    #[error(
        "ranks 0 and {rank} of the axis pp have different pipeline schedules: pass the same one on all ranks"
    )]
    Schedules {
        /// The first rank whose schedule is not that of rank 0.
        rank: usize,
    },
    /// A boundary whose buffers differ between its two ranks.
    #[error(
        "rank {from} of the axis pp sends messages to rank {to} that differ in number, dtype or length from those that \
         rank {to} receives: the boundaries between stages must have the same shapes on both ranks"
    )]
    Boundary {
        /// The sending rank.
        from: usize,
        /// The receiving rank.
        to: usize,
    },
    /// A communication error.
    #[error(transparent)]
    Comm(#[from] CommError),
}
