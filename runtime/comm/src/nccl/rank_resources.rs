//! The resources that the groups of a rank share.

use std::sync::{Arc, OnceLock};

use meshwright_backend::{CachingAllocator, Device, DeviceEvent, StreamKind};

use super::api::Library;
use super::capture_order::CaptureOrder;
use super::message_comms::MessageComms;
use super::registration::Registrations;
use super::scratch::Scratch;
use super::watchdog::Watchdog;

/// The library, the device and the communicators of a rank, which all of its groups share.
pub struct RankResources {
    pub library: Arc<dyn Library>,
    pub device: Arc<dyn Device>,
    /// The allocator of messages and staging buffers before the context of the rank exists.
    pub own_allocator: Arc<CachingAllocator>,
    /// The allocator of the rank.
    pub rank_allocator: OnceLock<Arc<CachingAllocator>>,
    pub scratch: Scratch,
    pub watchdog: Arc<Watchdog>,
    pub message_comms: MessageComms,
    pub capture_order: CaptureOrder,
    /// `None` if registration is off.
    pub registrations: Option<Arc<Registrations>>,
}

impl RankResources {
    /// Returns the allocator of staging buffers and scratch.
    pub fn allocator(&self) -> &Arc<CachingAllocator> {
        self.rank_allocator.get().unwrap_or(&self.own_allocator)
    }

    /// Makes `stream`, on which the next call begins, wait for the work of the compute stream so far, and during a
    /// capture [for earlier calls](CaptureOrder).
    pub fn begin_call(&self, stream: StreamKind) {
        let device = &*self.device;
        device.wait_for(stream, &device.mark_stream(StreamKind::Compute));
        self.capture_order.begin_call(device, stream);
    }

    /// Returns the event at the end of the call that was submitted last, on `stream`.
    pub fn end_call(&self, stream: StreamKind) -> DeviceEvent {
        let end = self.device.mark_stream(stream);
        self.capture_order.end_call(&*self.device, &end);
        end
    }
}
