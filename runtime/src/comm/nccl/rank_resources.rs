//! The resources that the groups of a rank share.

use std::sync::Arc;

use crate::backend::{CachingAllocator, Device, DeviceEvent, StreamKind};

use super::api::Library;
use super::capture_order::CaptureOrder;
use super::message_comms::MessageComms;
use super::registration::Registrations;
use super::watchdog::Watchdog;

/// The library, the device and the communicators of a rank, which all of its groups share.
pub struct RankResources {
    pub library: Arc<dyn Library>,
    pub device: Arc<dyn Device>,
    /// Memory of staging buffers and scratch.
    pub allocator: Arc<CachingAllocator>,
    pub watchdog: Arc<Watchdog>,
    pub message_comms: MessageComms,
    /// `None` if messages are not in rounds.
    pub capture_order: Option<CaptureOrder>,
    /// `None` if registration is off.
    pub registrations: Option<Arc<Registrations>>,
}

impl RankResources {
    /// Makes `stream`, on which the next call begins, wait for the work of the compute stream so far, and during a capture
    /// [for earlier calls](CaptureOrder).
    pub fn begin_call(&self, stream: StreamKind) {
        let device = &*self.device;
        device.wait_for(stream, &device.mark(StreamKind::Compute));
        if let Some(order) = &self.capture_order {
            order.begin_call(device, stream);
        }
    }

    /// Returns the event at the end of the call that was submitted last, on `stream`.
    pub fn end_call(&self, stream: StreamKind) -> DeviceEvent {
        let end = self.device.mark(stream);
        if let Some(order) = &self.capture_order {
            order.end_call(&*self.device, &end);
        }
        end
    }
}
