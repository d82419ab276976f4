//! What carries out the collectives of a rank.

use std::sync::Arc;

use crate::layout::AxisSet;

use super::{CommStats, Communicator, Departure, Timeline};

/// The communicators of one rank, over other means than the memory of this process.
pub trait Engine: Send + Sync {
    /// The rank's seat among the ranks that differ from it along `axes` only: the same one for the same axes.
    fn group(&self, axes: AxisSet) -> Arc<dyn Communicator>;

    /// Draws what seats queue on the device of the rank, from now on.
    fn trace(&self, timeline: &Arc<Timeline>);

    /// What each seat has done so far.
    fn stats(&self) -> Vec<(AxisSet, CommStats)>;

    /// The rank has ended. Tells those of other processes, and, where it failed, ends its communicators at once.
    fn leave(&self, departure: &Departure);
}
