//! What a device still works on after the host has gone on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::backend::{Buffer, Device, Moment, Queue};

/// A value whose memory is in use on a device until a moment, if any, has come.
///
/// Whether it is taken out or dropped, the compute queue of its device does nothing more before that moment. So memory
/// that goes back to the pool of a rank is free for whatever that rank computes next.
pub(super) struct Busy<T> {
    value: Option<T>,
    /// Further memory in use until then.
    held: Option<Arc<Buffer>>,
    until: Option<(Arc<dyn Device>, Moment)>,
}

impl<T> Busy<T> {
    /// A value that nothing uses any more.
    pub fn idle(value: T) -> Busy<T> {
        Busy { value: Some(value), held: None, until: None }
    }

    /// A value in memory of `device`, in use until `moment`; without either, one that nothing uses.
    pub fn until(value: T, device: Option<&Arc<dyn Device>>, moment: Option<Moment>) -> Busy<T> {
        let until = device.map(Arc::clone).zip(moment);
        Busy { value: Some(value), held: None, until }
    }

    /// Keeps `buffer` alive as long as it may be in use: not at all where nothing is.
    pub fn holding(mut self, buffer: Option<Arc<Buffer>>) -> Busy<T> {
        self.held = if self.until.is_some() { buffer } else { None };
        self
    }

    /// Whether a device may still use the value.
    pub fn is_under_way(&self) -> bool {
        self.until.is_some()
    }

    /// The value, which the compute queue of its device may use from now on.
    pub fn claim(mut self) -> Option<T> {
        if let Some((device, moment)) = self.until.take() {
            device.wait_for(Queue::Compute, &moment);
        }
        self.value.take()
    }
}

impl<T> Drop for Busy<T> {
    fn drop(&mut self) {
        if let Some((device, moment)) = self.until.take() {
            let wait = || device.wait_for(Queue::Compute, &moment);
            // A device that has failed has no work left that could use the memory.
            let _ = catch_unwind(AssertUnwindSafe(wait));
        }
    }
}
