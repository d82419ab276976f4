//! What carries out the collectives of a rank.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backend::MemoryMeter;
use crate::layout::AxisSet;

use super::{CommError, CommStats, Communicator, Departure, Timeline};

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

    /// Where a device can record collectives, to do them [again](Self::replay): what counts the memory that they need
    /// beside their operands.
    fn recordable(&self) -> Option<Arc<MemoryMeter>> {
        None
    }

    /// Whether all ranks say yes. Every rank calls it; it is in no [statistics](Self::stats), and the host waits for it.
    ///
    /// # Errors
    /// As of a collective.
    fn agree(&self, yes: bool) -> Result<bool, CommError>;

    /// Lets `submit` queue recorded collectives once more, and counts them as `added` says; `what` they are part of is named
    /// where they fail.
    ///
    /// # Errors
    /// Where no call can be made any more.
    fn replay(
        &self,
        what: &str,
        added: &BTreeMap<AxisSet, CommStats>,
        submit: &mut dyn FnMut(),
    ) -> Result<(), CommError>;
}
