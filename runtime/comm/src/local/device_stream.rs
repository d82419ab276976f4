//! The stream of a member's work on operands in device memory.
//!
//! All ranks of the process share one device, so that addresses of one are usable by the others. The host threads only
//! rendezvous, as they do for host memory; the order of reads and writes is left to the streams, which wait for each
//! other's events:
//! 1. A member contributes the event after which its memory may be used.
//! 2. It submits its work after the events of all members, and records an event at the end.
//! 3. If it has lent memory, its stream waits for the end events of the others.

use std::sync::Arc;

use meshwright_backend::{Device, DeviceEvent, StreamKind};

/// A stream of the calling rank.
#[derive(Clone)]
pub struct DeviceStream {
    pub device: Arc<dyn Device>,
    pub stream: StreamKind,
    /// Event after which the rank's own operands may be used.
    pub ready: DeviceEvent,
}

impl DeviceStream {
    /// The compute stream, for a blocking call.
    pub fn compute(device: &Arc<dyn Device>) -> DeviceStream {
        let ready = device.mark_stream(StreamKind::Compute);
        DeviceStream { device: Arc::clone(device), stream: StreamKind::Compute, ready }
    }

    /// Communication stream `number`, for an asynchronous call on operands that are ready at an event; that of the
    /// compute stream now if there is none.
    pub fn communication(
        device: &Arc<dyn Device>,
        number: usize,
        ready: Option<DeviceEvent>,
    ) -> DeviceStream {
        let ready = ready.unwrap_or_else(|| device.mark_stream(StreamKind::Compute));
        DeviceStream {
            device: Arc::clone(device),
            stream: StreamKind::Communication(number),
            ready,
        }
    }

    /// Orders later work on the stream after `event`.
    pub fn wait_for(&self, event: &DeviceEvent) {
        self.device.wait_for(self.stream, event);
    }

    /// Orders later work on the stream after the rank's own operands are ready.
    pub fn wait_for_own_operands(&self) {
        if self.stream != StreamKind::Compute {
            self.wait_for(&self.ready);
        }
    }

    /// Records an event after the work that was submitted so far.
    pub fn record_event(&self) -> DeviceEvent {
        self.device.mark_stream(self.stream)
    }
}
