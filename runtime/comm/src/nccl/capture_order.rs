//! The order of a rank's calls in a CUDA graph.
//!
//! A graph may run its branches one after the other, in any order. If one rank ran a gradient reduction over `dp`
//! before a gather over `tp`, and another the gather first, each would wait for the other through their neighbors; the
//! same holds for reductions and rounds of messages. So all calls of a rank are captured as one branch, in the order of
//! issue by the host. It has a price: in a graph, calls of different process groups overlap with compute, but not with
//! each other.
//!
//! In this order no ranks wait for each other. Ranks with the same position along `pp` issue the same calls in the same
//! order, and calls of other axes have no other members: all members of such a call come to it. So ranks can only be
//! stuck in rounds; but all of the lowest round's ranks have come to it, as they issue rounds in ascending order.

use std::sync::{Mutex, MutexGuard, PoisonError};

use meshwright_backend::{Device, DeviceEvent, StreamKind};

/// The last captured call of a rank.
#[derive(Default)]
pub struct CaptureOrder {
    /// The end of the last call; `None` if no capture is in progress.
    last: Mutex<Option<DeviceEvent>>,
}

impl CaptureOrder {
    /// Makes `stream`, on which the next call begins, wait for the call that was captured before.
    pub fn begin_call(&self, device: &dyn Device, stream: StreamKind) {
        let mut last = self.lock();
        if !device.is_capturing() {
            // Calls of an earlier capture.
            *last = None;
        } else if let Some(end) = &*last {
            device.wait_for(stream, end);
        }
    }

    /// Notes the end of the call.
    pub fn end_call(&self, device: &dyn Device, end: &DeviceEvent) {
        if device.is_capturing() {
            *self.lock() = Some(end.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<DeviceEvent>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
