//! The saves since the last line of metrics.

use std::time::Duration;

/// The saves since the last line of metrics, the same on all ranks but for the time.
#[derive(Default)]
pub struct RecentSaves {
    waited: Option<Duration>,
    bytes: Option<u64>,
}

impl RecentSaves {
    /// Adds the time that training has waited for a save.
    pub(super) fn add_wait(&mut self, time: Duration) {
        *self.waited.get_or_insert_default() += time;
    }

    /// Adds the bytes of a checkpoint that is complete.
    pub(super) fn add_bytes(&mut self, bytes: u64) {
        *self.bytes.get_or_insert_default() += bytes;
    }

    /// Returns the seconds of waiting and the bytes since the last call, if there was a save.
    pub fn take(&mut self) -> (Option<f64>, Option<u64>) {
        (self.waited.take().map(|time| time.as_secs_f64()), self.bytes.take())
    }
}
