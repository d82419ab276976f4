//! Memory that a device still uses after the host has moved on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use meshwright_backend::{Buffer, Device, DeviceEvent, StreamKind};

/// A value whose memory may be in use on a device until an event.
///
/// When the value is claimed or dropped, the compute stream of the device waits for the event. So memory that returns
/// to the pool of a rank is free for the next computation of that rank.
pub(super) struct InUse<T> {
    value: Option<T>,
    /// Further buffers in use until the event.
    held: [Option<Arc<Buffer>>; 2],
    until: Option<(Arc<dyn Device>, DeviceEvent)>,
}

impl<T> InUse<T> {
    /// Creates a value that is not in use.
    pub fn idle(value: T) -> InUse<T> {
        InUse { value: Some(value), held: [None, None], until: None }
    }

    /// Creates a value in use on `device` until `event`; one that is not in use if either is `None`.
    pub fn until(
        value: T,
        device: Option<&Arc<dyn Device>>,
        event: Option<DeviceEvent>,
    ) -> InUse<T> {
        let until = device.map(Arc::clone).zip(event);
        InUse { value: Some(value), held: [None, None], until }
    }

    /// Keeps `buffer` alive as long as the value is in use, in addition to at most one other buffer.
    pub fn holding(mut self, buffer: Option<Arc<Buffer>>) -> InUse<T> {
        if let Some(buffer) = buffer.filter(|_| self.until.is_some()) {
            let free = self.held.iter_mut().find(|held| held.is_none());
            *free.expect("a call holds its source and its scratch") = Some(buffer);
        }
        self
    }

    /// Returns `true` if a device may still use the value.
    pub fn is_pending(&self) -> bool {
        self.until.is_some()
    }

    /// Returns the value, usable on the compute stream of its device from now on.
    pub fn claim(mut self) -> Option<T> {
        if let Some((device, event)) = self.until.take() {
            device.wait_for(StreamKind::Compute, &event);
        }
        self.value.take()
    }
}

impl<T> Drop for InUse<T> {
    fn drop(&mut self) {
        if let Some((device, event)) = self.until.take() {
            let wait = || device.wait_for(StreamKind::Compute, &event);
            // A device that has failed has no work left that could use the memory.
            let _ = catch_unwind(AssertUnwindSafe(wait));
        }
    }
}
