//! What a rank hears of the ends of others.

use std::fmt::Debug;

use super::Departure;

/// How ranks tell each other that they have ended, beside their communicators: a rank that waits in a collective for one
/// that is gone would else wait until its timeout.
pub trait Peers: Send + Sync + Debug {
    /// Another rank that has failed or was lost, and how: the first of which this rank has heard. One that has come to
    /// the end of its work is not told of.
    fn lost(&self) -> Option<(usize, Departure)>;

    /// Tells the others how this rank has ended. Returns when they have been told, or cannot be.
    fn leave(&self, departure: &Departure);
}
