//! Failure detection between ranks.

use std::fmt::Debug;

use super::RankExit;

/// Failure detection outside of the communicators: a rank that waits in a collective for one that has ended would
/// otherwise wait until its timeout.
pub trait Peers: Send + Sync + Debug {
    /// Returns the first other rank whose failure or loss was detected, and its cause. Ranks that have returned are not
    /// reported.
    fn failed_peer(&self) -> Option<(usize, RankExit)>;

    /// Announces the exit of this rank to the others. Returns when they have been notified, or cannot be.
    fn announce_exit(&self, exit: &RankExit);

    /// Describes the ranks that have made no progress for longest, each on a line that begins with a line break, for
    /// the error of a call that waits too long. Empty if none is known.
    fn describe_idle(&self) -> String {
        String::new()
    }
}
