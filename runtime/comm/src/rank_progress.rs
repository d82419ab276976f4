//! The progress of a rank, as its heartbeats report it.

use std::fmt;

/// The progress of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankProgress {
    /// The step that it is in, from 1; 0 before the first one.
    pub step: u64,
    /// Number of its calls so far.
    pub calls: u64,
    /// Set while its main thread waits in a call.
    pub is_communicating: bool,
    /// Description of its last call; empty before the first one.
    pub last_call: String,
}

/// ``in step 812; its last call was all_gather of `blocks.3` over tp, number 4410``.
impl fmt::Display for RankProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            0 => f.write_str("before its first step")?,
            step => write!(f, "in step {step}")?,
        }
        match (self.calls, self.is_communicating) {
            (0, _) => f.write_str(", and has made no call"),
            (_, true) => write!(f, ", and waits in {}", self.last_call),
            (_, false) => write!(f, "; its last call was {}", self.last_call),
        }
    }
}
