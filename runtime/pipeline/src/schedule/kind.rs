//! The schedules that have a name.

use std::fmt;
use std::str::FromStr;

/// A named schedule, which a generator makes for any number of ranks and micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScheduleKind {
    /// All forward passes, then all backward passes (Huang et al. 2019).
    GPipe,
    /// One forward and one backward pass in turn in the steady state (Narayanan et al. 2019).
    OneFOneB,
    /// 1F1B over several chunks per rank (Narayanan et al. 2021).
    Interleaved,
    /// 1F1B with the backward pass in two parts; weight gradients fill the bubble (Qi et al. 2023).
    ZeroBubbleH1,
    /// Two chunks per rank in the shape of a V, without a bubble in the steady state (Qi et al. 2024).
    ZeroBubbleV,
    /// Two chunks per rank in the shape of a V, forward and backward passes overlapped (Sea AI Lab 2025).
    DualPipeV,
}

/// A schedule that cannot be generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A name that no schedule has.
    #[error("`{name}` is not a schedule: choose one of {}", kind_names())]
    Name {
        /// The unknown name.
        name: String,
    },
    /// A number of ranks, chunks or micro-batches that is 0.
    #[error("{what} is 0, but must be at least 1")]
    Zero {
        /// The number that is 0.
        what: &'static str,
    },
    /// A number of chunks per rank that the schedule does not have.
    #[error(
        "{kind} has {needs} per rank, not {given}: leave `--virtual-stages` out, or choose another schedule"
    )]
    Chunks {
        /// The schedule.
        kind: ScheduleKind,
        /// The numbers of chunks that it can have.
        needs: &'static str,
        /// Requested number.
        given: usize,
    },
}

fn kind_names() -> String {
    let names: Vec<&str> = ScheduleKind::ALL.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}

impl ScheduleKind {
    /// All schedules, the simplest first.
    pub const ALL: [ScheduleKind; 6] = [
        ScheduleKind::GPipe,
        ScheduleKind::OneFOneB,
        ScheduleKind::Interleaved,
        ScheduleKind::ZeroBubbleH1,
        ScheduleKind::ZeroBubbleV,
        ScheduleKind::DualPipeV,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ScheduleKind::GPipe => "gpipe",
            ScheduleKind::OneFOneB => "1f1b",
            ScheduleKind::Interleaved => "interleaved",
            ScheduleKind::ZeroBubbleH1 => "zb-h1",
            ScheduleKind::ZeroBubbleV => "zb-v",
            ScheduleKind::DualPipeV => "dualpipev",
        }
    }

    /// Returns the default number of chunks per rank.
    pub fn default_chunks(self) -> usize {
        match self {
            ScheduleKind::Interleaved | ScheduleKind::ZeroBubbleV | ScheduleKind::DualPipeV => 2,
            ScheduleKind::GPipe | ScheduleKind::OneFOneB | ScheduleKind::ZeroBubbleH1 => 1,
        }
    }
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ScheduleKind {
    type Err = ScheduleError;

    fn from_str(name: &str) -> Result<ScheduleKind, ScheduleError> {
        let found = ScheduleKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| ScheduleError::Name { name: name.to_owned() })
    }
}
