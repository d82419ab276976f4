//! The resources that the groups of a rank share.

use std::sync::Arc;

use crate::backend::{CachingAllocator, Device};

use super::api::Library;
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
    /// `None` if registration is off.
    pub registrations: Option<Arc<Registrations>>,
}
