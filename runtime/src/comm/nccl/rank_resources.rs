//! The resources that the groups of a rank share.

use std::sync::Arc;

use crate::backend::{CachingAllocator, Device};

use super::api::Library;
use super::pair_comms::PairComms;
use super::registration::Registrations;
use super::watchdog::Watchdog;

/// The library, the device and the communicators of a rank, which all of its groups share.
pub struct RankResources {
    pub library: Arc<dyn Library>,
    pub device: Arc<dyn Device>,
    /// Memory of staging buffers and scratch.
    pub allocator: Arc<CachingAllocator>,
    pub watchdog: Arc<Watchdog>,
    pub pair_comms: PairComms,
    /// `None` if registration is off.
    pub registrations: Option<Arc<Registrations>>,
}
